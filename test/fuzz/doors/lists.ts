// Are configuration lists validated: as text, as files of a directory, by `catena validate`?
import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { parseNetwork, parsePlugin } from '../../../src/chain/config/conflist.ts';
import { listNetworks, loadFile } from '../../../src/chain/config/load.ts';
import { buildRequest } from '../../../src/chain/run/call-plugins.ts';
import { readDocument } from '../../../src/cli/validate/document.ts';
import { ErrorCode } from '../../../src/cni/errors.ts';
import { findSyntaxProblem } from '../../../src/cni/json-place.ts';
import { definitionsOf, findDefinition } from '../../../src/delegate/find-network.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedJson, damagedJsonText, damagedText } from '../mutate.ts';
import { answersOrRefuses } from '../promise.ts';
import { LIST_TEXTS, LISTS, REQUESTS, RESULTS } from '../samples.ts';

const { incompatibleVersion, ioFailure, decodingFailure, invalidConfig } = ErrorCode;

/** A conflist, or a single configuration, as text. */
export const list = door({
  name: 'conflist',
  weight: 14,
  arbitrary: fc.oneof(damagedJsonText([...LISTS, ...REQUESTS]), damagedText(LIST_TEXTS)),
  run(text) {
    const network = answersOrRefuses(
      () => parseNetwork(text),
      incompatibleVersion,
      decodingFailure,
      invalidConfig,
    );
    answersOrRefuses(() => parsePlugin(text), incompatibleVersion, decodingFailure, invalidConfig);
    for (const entry of network?.plugins ?? [])
      JSON.stringify(buildRequest(network as never, entry, { prevResult: RESULTS[0], capabilityArgs: {} }));
  },
});

/** A file of a configuration directory, whose errors have a position. */
export const listFile = door({
  name: 'conflist file',
  weight: 5,
  seeds: [
    // A name too long for a directory prevented every other file of the directory from being read.
    JSON.stringify({ ...LISTS[0], name: 'x'.repeat(300) }),
    // The error quoted everything that was found.
    JSON.stringify({ ...LISTS[0], cniVersion: 'y'.repeat(100_000) }),
  ],
  arbitrary: fc.oneof(damagedJsonText(LISTS), damagedText(LIST_TEXTS)),
  run(text) {
    const dir = ground().dir('lists');
    const file = path.join(dir, 'x.conflist');
    fs.writeFileSync(file, text);
    answersOrRefuses(() => loadFile(file), incompatibleVersion, ioFailure, decodingFailure, invalidConfig);
    const { networks, diagnostics } = listNetworks(dir);
    if (networks.length + diagnostics.length === 0)
      throw new Error('the file is neither used nor complained about');
    const syntax = findSyntaxProblem(text);
    const { document, findings } = readDocument(file);
    if (document === undefined && findings.length === 0) throw new Error('`validate` says nothing about it');
    if (syntax && syntax.line < 1) throw new Error('its mistake has no place');
  },
});

const DEFINITION = {
  apiVersion: 'k8s.cni.cncf.io/v1',
  kind: 'NetworkAttachmentDefinition',
  metadata: { name: 'net1', namespace: 'default' },
  spec: { config: JSON.stringify(LISTS[0]) },
};

const YAML = [
  'apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  name: net1\nspec:\n  config: |\n    {"name":"x"}\n',
  'a: &a [net1, net1, net1, net1, net1, net1, net1, net1, net1]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b]\nd: [*c, *c, *c, *c]\n',
  'kind: List\nitems:\n- kind: NetworkAttachmentDefinition\n  metadata: {name: net1, namespace: a}\n---\n!!binary |\n  aGk=\n',
  '? {net1: 1}\n: [1, 2\n',
];

/** NetworkAttachmentDefinitions in JSON and YAML, as files and as sent by a cluster. */
export const definition = door({
  name: 'NetworkAttachmentDefinition',
  weight: 1.5,
  arbitrary: fc.oneof(
    damagedJsonText([DEFINITION, { kind: 'List', items: [DEFINITION] }]).map(text => ({
      name: 'a.json',
      text,
    })),
    damagedText(YAML).map(text => ({ name: 'a.yaml', text })),
  ),
  async run({ name, text }) {
    const dir = ground().dir('definitions');
    fs.writeFileSync(path.join(dir, name), text);
    try {
      await findDefinition(dir, 'default', 'net1');
    } catch (error) {
      answersOrRefuses(() => {
        throw error;
      }, invalidConfig);
    }
    fs.rmSync(path.join(dir, name));
  },
});

/** The reply of a cluster. */
export const definitionObject = door({
  name: 'definition object',
  weight: 3,
  arbitrary: damagedJson([DEFINITION, { kind: 'List', items: [DEFINITION] }]),
  run(value) {
    for (const found of definitionsOf(value))
      if (typeof found.config !== 'string') throw new Error('its configuration is no text');
  },
});
