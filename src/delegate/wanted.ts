// Which networks is a pod to have, in which order, and at whose request?

import { argOf } from '../cni/env.ts';
import { invalidConfig } from '../cni/errors.ts';
import { type JsonObject, textsIn } from '../cni/json.ts';
import { findChainBeside } from './find-network.ts';
import { namespaceOf, type Pod, type RunnerOptions, type Selection } from './runner.ts';
import {
  DEFAULT_NETWORK_ANNOTATION,
  NETWORKS_ANNOTATION,
  parseSelections,
  selectByConfig,
  selectByName,
} from './selection.ts';

export interface WantedNetwork {
  readonly selection: Selection;
  /** Namespace of its definition. */
  readonly namespace: string;
  /** A pod names it, not the configuration. */
  readonly byPod: boolean;
  /** Set for a network that the annotation of networks selects: the selection, by which it is found again. */
  readonly asked?: string;
  /** What its first plugin gets as the previous result. */
  readonly prevResult?: JsonObject;
}

/** The capability in which containerd and CRI-O pass the annotations of a pod. */
export const ANNOTATIONS_CAPABILITY = 'io.kubernetes.cri.pod-annotations';

/** The argument in which a caller without annotations may name further networks. */
export const NETWORKS_ARG = 'CATENA_NETWORKS';

const NO_NAMESPACE = 'default';

/** Annotations of the pod, as the runtime passes them. */
export function annotationsOf(pod: Pod): Readonly<Record<string, string>> {
  return textsIn(pod.capabilityArgs[ANNOTATIONS_CAPABILITY]);
}

/**
 * The networks of a pod. The first is its default network; then come those of the configuration, of CNI_ARGS and of
 * the annotation, each in its own order.
 * @param annotations of the pod
 * @throws CniError 7 when there is no default network, an annotation is wrong, or a namespace may not be used
 */
export function listWanted(
  options: RunnerOptions,
  pod: Pod,
  annotations: Readonly<Record<string, string>> = annotationsOf(pod),
): WantedNetwork[] {
  const { policy } = options;
  const own = namespaceOf(pod) ?? NO_NAMESPACE;
  const byConfiguration = (selection: Selection) => configuredAs(options, selection);
  const byPod = (fallback: string) => (selection: Selection) => namedBy(options, own, fallback, selection);

  const [first, ...others] = configured(options).map(byConfiguration);
  const replacement = replacementOf(options, annotations).map(byPod(policy.definitions))[0];
  const everyPod = policy.system.includes(own) ? [] : options.defaultNetworks;
  const wanted = [
    replacement ?? first,
    ...others,
    ...everyPod.map(name => byConfiguration(selectByName(name))),
    ...options.networks.map(byConfiguration),
    ...inArguments(options, pod).map(byPod(own)),
    ...listAnnotated(options, pod, annotations),
    ...auxiliaryOf(options),
  ];
  return wanted.filter(one => one !== undefined);
}

/**
 * The networks that the annotation of networks selects, as {@link listWanted} has them.
 * @throws CniError 7 for a wrong annotation, or a namespace that may not be used
 */
export function listAnnotated(
  options: RunnerOptions,
  pod: Pod,
  annotations: Readonly<Record<string, string>>,
): WantedNetwork[] {
  const own = namespaceOf(pod) ?? NO_NAMESPACE;
  const what = `annotation "${NETWORKS_ANNOTATION}"`;
  const most = options.maxNetworks - inArguments(options, pod).length;
  return parseSelections(annotations[NETWORKS_ANNOTATION] ?? '', what, most).map(selection => {
    const named = namedBy(options, own, own, selection);
    return { ...named, asked: JSON.stringify([named.namespace, selection]) };
  });
}

/**
 * Networks that the configuration names, which STATUS and GC use in addition to those on record.
 * @throws CniError 7 when there is no default network
 */
export function listConfigured(options: RunnerOptions): WantedNetwork[] {
  const further = [...options.defaultNetworks.map(name => selectByName(name)), ...options.networks];
  const wanted = [...configured(options), ...further].map(one => configuredAs(options, one));
  return [...wanted, ...auxiliaryOf(options)];
}

function configuredAs({ policy }: RunnerOptions, selection: Selection): WantedNetwork {
  return { selection, namespace: selection.namespace ?? policy.definitions, byPod: false };
}

/** Its first plugin follows one that does nothing, as in multus. */
function auxiliaryOf({ auxiliary, policy, version }: RunnerOptions): WantedNetwork[] {
  const config = auxiliary && findChainBeside(auxiliary);
  if (config === undefined) return [];
  const selection = selectByConfig(config, auxiliary?.name ?? '');
  return [
    { selection, namespace: policy.definitions, byPod: false, prevResult: { cniVersion: version, dns: {} } },
  ];
}

function configured({ defaultNetwork, delegates, network }: RunnerOptions): readonly Selection[] {
  const first = defaultNetwork === undefined ? [] : [selectByName(defaultNetwork)];
  if (first.length + delegates.length > 0) return [...first, ...delegates];
  throw invalidConfig(
    `Cannot use network "${network}": it has no default network; set "delegates" or "network"`,
  );
}

function inArguments({ maxNetworks }: RunnerOptions, pod: Pod): Selection[] {
  const what = `"${NETWORKS_ARG}" of CNI_ARGS`;
  return parseSelections(argOf(pod, NETWORKS_ARG) ?? '', what, maxNetworks);
}

function replacementOf(
  { maxNetworks }: RunnerOptions,
  annotations: Readonly<Record<string, string>>,
): Selection[] {
  const what = `annotation "${DEFAULT_NETWORK_ANNOTATION}"`;
  const found = parseSelections(annotations[DEFAULT_NETWORK_ANNOTATION] ?? '', what, maxNetworks);
  if (found.length < 2) return found;
  throw invalidConfig(`Cannot use ${what}: it names ${found.length} networks, not one`);
}

/**
 * A network that a pod of this namespace names.
 * @param fallback namespace of a definition that is named without one
 * @throws CniError 7 for a namespace that may not be used
 */
function namedBy(
  { policy }: RunnerOptions,
  own: string,
  fallback: string,
  selection: Selection,
): WantedNetwork {
  const { name, namespace = fallback } = selection;
  if (!policy.isolated || namespace === own || policy.global.includes(namespace))
    return { selection, namespace, byPod: true };
  throw invalidConfig(
    `Cannot use network "${namespace}/${name}" in a pod of namespace "${own}": "namespaceIsolation" is set`,
    { details: `namespaces open to all: ${policy.global.join(', ') || 'none'}` },
  );
}
