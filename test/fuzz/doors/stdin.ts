// Do all plugins and the delegate runner withstand arbitrary requests on standard input, in this process?
import fc from 'fast-check';
import { PLUGIN_NAMES, PLUGINS, RUNNER, RUNNER_NAME } from '../../../plugins/registry.ts';
import { isObject } from '../../../src/cni/json.ts';
import type { PluginDefinition } from '../../../src/plugin/define.ts';
import { serve } from '../../../src/plugin/serve.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedJson, damagedJsonText } from '../mutate.ts';
import { checkErrorReply } from '../promise.ts';
import { REQUESTS } from '../samples.ts';
import { atHome, environmentOf } from './home.ts';

const plugins = await Promise.all(
  PLUGIN_NAMES.map(async name => [name, await PLUGINS[name].load()] as const),
);
const DEFINITIONS = new Map<string, PluginDefinition>([...plugins, [RUNNER_NAME, await RUNNER.load()]]);

const namespaces = fc.constantFrom('/nonexistent/netns', '/proc/self/ns/net', '', '/etc/passwd');

/** A request that is JSON of nearly the right shape. */
export const request = door({
  name: 'stdin',
  weight: 6,
  arbitrary: fc.record({
    type: fc.constantFrom(...DEFINITIONS.keys()),
    command: fc.constantFrom('ADD', 'CHECK', 'DEL', 'GC', 'STATUS'),
    stdin: damagedJson(REQUESTS),
    netns: namespaces,
  }),
  run: ({ type, command, stdin, netns }) => call(type, command, JSON.stringify(atHome(stdin)), netns),
});

/** A request that is arbitrary text. */
export const noise = door({
  name: 'stdin text',
  weight: 5,
  // DEL of the runner mistook these keys for options.
  seeds: ['__proto__', 'constructor'].map(key => ({
    type: 'catena',
    command: 'DEL' as const,
    netns: '/nonexistent/netns' as const,
    stdin: `{"cniVersion":"1.1.0","name":"x","type":"catena","${key}":"y"}`,
  })),
  arbitrary: fc.record({
    type: fc.constantFrom(...DEFINITIONS.keys()),
    command: fc.constantFrom('ADD', 'DEL', 'VERSION', 'STATUS'),
    stdin: damagedJsonText([{ cniVersion: '1.1.0', name: 'x', type: 'y' }]),
    netns: namespaces,
  }),
  run: ({ type, command, stdin, netns }) => call(type, command, stdin, netns),
});

async function call(type: string, command: string, stdin: string, netns: string): Promise<void> {
  const definition = DEFINITIONS.get(type);
  if (definition === undefined) throw new Error(`there is no plugin "${type}"`);
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: 'c1',
    CNI_IFNAME: 'eth0',
    CNI_NETNS: netns,
    CNI_PATH: `${ground().root}/bin`,
    ...environmentOf(),
  };
  const { exitCode, stdout, log } = await serve(definition, { env, readStdin: () => stdin });
  if (exitCode === 0) {
    if (stdout !== '' && !isObject(JSON.parse(stdout))) throw new Error(`it printed ${stdout.slice(0, 200)}`);
    return;
  }
  checkErrorReply(stdout);
  // A bug of ours is logged as an error with the source position where it happened.
  await log.flush(line => {
    const { level, message } = JSON.parse(line) as { level: string; message: string };
    if (level === 'error' && /^\w*Error: .*\n\s+at /s.test(message))
      throw new Error(`it made a mistake: ${message}`);
  });
}
