// Is the environment of a plugin or runner validated: CNI_* variables, CNI_ARGS, CNI_PATH, TRACEPARENT?
import fc from 'fast-check';
import { findPlugin, parsePluginDirs } from '../../../src/chain/config/find-plugin.ts';
import { parseTraceParent } from '../../../src/chain/run/trace-context.ts';
import { parseCniArgs, parseEnv, pickCniArgs, renderCniArgs } from '../../../src/cni/env.ts';
import { ErrorCode } from '../../../src/cni/errors.ts';
import { door } from '../door.ts';
import { damagedText, strangeText } from '../mutate.ts';
import { answersOrRefuses } from '../promise.ts';

const variable = (...samples: string[]) =>
  fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...samples) }, strangeText);

const environmentOf = fc.record(
  {
    CNI_COMMAND: variable('ADD', 'CHECK', 'DEL', 'GC', 'STATUS', 'VERSION'),
    CNI_CONTAINERID: variable('c1', 'a.b_c-d'),
    CNI_NETNS: variable('/run/netns/c1', ''),
    CNI_IFNAME: variable('eth0', 'net1'),
    CNI_ARGS: damagedText(['IgnoreUnknown=1;K8S_POD_NAME=web', 'IP=10.9.0.3;MAC=02:00:00:00:00:01']),
    CNI_PATH: damagedText(['/opt/cni/bin', '/a::/b', ':', '.']),
    CNI_NETNS_OVERRIDE: variable('1', 'true'),
  },
  { requiredKeys: [] },
);

/** What a runtime puts into the environment. */
export const environment = door({
  name: 'environment',
  weight: 12,
  arbitrary: environmentOf,
  run(env) {
    const parsed = answersOrRefuses(() => parseEnv(env), ErrorCode.invalidEnvironment);
    if (parsed === undefined) return;
    const needsId = ['ADD', 'CHECK', 'DEL'].includes(parsed.command);
    const path = `${parsed.containerId}/${parsed.ifname}`;
    // Both become file names.
    if (needsId && !/^[^/\0]*[^/\0.][^/\0]*\/[^/\0]*[^/\0.][^/\0]*$/.test(path))
      throw new Error(`it let ${JSON.stringify(path)} in`);
    answersOrRefuses(() => findPlugin('no-such-plugin', parsePluginDirs(parsed.path)), ErrorCode.unknown);
    answersOrRefuses(() => findPlugin(parsed.ifname, parsePluginDirs(parsed.path)));
  },
});

/** `CNI_ARGS` alone, and how it is passed on. */
export const cniArgs = door({
  name: 'CNI_ARGS',
  weight: 8,
  arbitrary: damagedText([
    'IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_NAMESPACE=default',
    'IP=10.9.0.3',
    'A=B;;C=D',
    'IgnoreUnknown=maybe',
  ]),
  run(text) {
    const args = answersOrRefuses(() => parseCniArgs(text), ErrorCode.invalidEnvironment);
    if (args === undefined) return;
    if (text !== '' && renderCniArgs(args) !== text)
      throw new Error(`it becomes ${JSON.stringify(renderCniArgs(args))}`);
    answersOrRefuses(() => pickCniArgs(args, ['IP', 'MAC']), ErrorCode.invalidEnvironment);
  },
});

/** The trace context that a caller passes. */
export const traceParent = door({
  name: 'TRACEPARENT',
  weight: 3,
  arbitrary: damagedText(['00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01']),
  run(text) {
    const parsed = parseTraceParent(text);
    if (parsed !== undefined && text.length < 55) throw new Error('it was taken for whole');
  },
});
