// Which kinds of objects that other projects define does the runner read, and how does a cluster get them?

import type { Row } from '../helpers/netns.ts';

const GROUP = 'k8s.cni.cncf.io';

interface Kind {
  readonly group?: string;
  readonly names: {
    readonly kind: string;
    readonly singular: string;
    readonly shortNames?: readonly string[];
  };
  /** Its only version. */
  readonly version: { readonly name: string; readonly subresources?: Row };
  readonly properties: Row;
}

function definitionOf({ group = GROUP, names, version, properties }: Kind): Row {
  const plural = `${names.singular}s`;
  const schema = { openAPIV3Schema: { type: 'object', properties } };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: 'Namespaced',
      names: { plural, ...names },
      versions: [{ ...version, served: true, storage: true, schema }],
    },
  };
}

/** Network definitions, as the multi-network specification has them. */
export const DEFINITIONS = definitionOf({
  names: {
    kind: 'NetworkAttachmentDefinition',
    singular: 'network-attachment-definition',
    shortNames: ['net-attach-def'],
  },
  version: { name: 'v1' },
  properties: { spec: { type: 'object', properties: { config: { type: 'string' } } } },
});

/** Addresses that outlive pods. */
export const CLAIMS = definitionOf({
  names: { kind: 'IPAMClaim', singular: 'ipamclaim' },
  version: { name: 'v1alpha1', subresources: { status: {} } },
  properties: {
    spec: {
      type: 'object',
      required: ['network', 'interface'],
      properties: { network: { type: 'string' }, interface: { type: 'string' } },
    },
    status: {
      type: 'object',
      required: ['ips'],
      properties: { ips: { type: 'array', items: { type: 'string' } } },
    },
  },
});

/** What whereabouts writes its addresses into. */
export const POOLS_OF_WHEREABOUTS = [
  { kind: 'IPPool', singular: 'ippool' },
  { kind: 'OverlappingRangeIPReservation', singular: 'overlappingrangeipreservation' },
].map(names =>
  definitionOf({
    group: 'whereabouts.cni.cncf.io',
    names,
    version: { name: 'v1alpha1' },
    properties: { spec: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
  }),
);
