// Which of our executables was called? One binary, many names.
import { basename } from 'node:path';
import type { PluginDefinition } from '../src/plugin/define.ts';
import type { PluginName } from './names.ts';

/** Every link, loaded when its name is called; the only list of them besides names.ts. */
const PLUGINS: Readonly<Record<PluginName, () => Promise<PluginDefinition>>> = {
  bandwidth: async () => (await import('./bandwidth/plugin.ts')).bandwidth,
  bridge: async () => (await import('./bridge/plugin.ts')).bridge,
  'host-local': async () => (await import('./host-local/plugin.ts')).hostLocal,
  loopback: async () => (await import('./loopback/plugin.ts')).loopback,
  portmap: async () => (await import('./portmap/plugin.ts')).portmap,
  tuning: async () => (await import('./tuning/plugin.ts')).tuning,
};

const { name, args } = calledAs(process.argv0, process.argv.slice(2));
const definition = findPlugin(name);
if (definition === undefined) {
  const { runMain } = await import('../src/cli/main.ts');
  process.exit(await runMain(args));
}
const { runPlugin } = await import('../src/plugin/run.ts');
await runPlugin(await definition, findPlugin);

/** `bun plugins/main.ts --as bridge` calls a link without having been compiled. */
function calledAs(argv0: string, argv: string[]): { name: string; args: string[] } {
  const [flag, as, ...rest] = argv;
  return flag === '--as' && as !== undefined
    ? { name: as, args: rest }
    : { name: basename(argv0), args: argv };
}

function findPlugin(type: string): Promise<PluginDefinition> | undefined {
  return Object.hasOwn(PLUGINS, type) ? PLUGINS[type as PluginName]() : undefined;
}
