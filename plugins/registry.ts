// Which plugins do we ship? One row per folder here, per executable in dist/bin, and per row of the README's table.
//
// Every start loads this file, so a row only says how to load a plugin: a call loads `plugin.ts`, a tool loads `about.ts`.
import type { PluginAbout } from '../src/cni/plugin-about.ts';
import type { PluginDefinition } from '../src/plugin/define.ts';
import type { RunnerSurroundings } from './catena/runner.ts';

interface RegisteredPlugin {
  /** What it does. */
  readonly load: () => Promise<PluginDefinition>;
  /** What tools know about it; a call of the plugin never loads this. */
  readonly about: () => Promise<PluginAbout>;
}

function row(
  plugin: () => Promise<{ readonly plugin: PluginDefinition }>,
  about: () => Promise<{ readonly about: PluginAbout }>,
): RegisteredPlugin {
  return { load: async () => (await plugin()).plugin, about: async () => (await about()).about };
}

/** Every plugin of a chain, by name; each name is a hard link to the one compiled binary. */
export const PLUGINS = {
  bandwidth: row(
    () => import('./bandwidth/plugin.ts'),
    () => import('./bandwidth/about.ts'),
  ),
  bridge: row(
    () => import('./bridge/plugin.ts'),
    () => import('./bridge/about.ts'),
  ),
  cluster: row(
    () => import('./cluster/plugin.ts'),
    () => import('./cluster/about.ts'),
  ),
  dhcp: row(
    () => import('./dhcp/plugin.ts'),
    () => import('./dhcp/about.ts'),
  ),
  dummy: row(
    () => import('./dummy/plugin.ts'),
    () => import('./dummy/about.ts'),
  ),
  firewall: row(
    () => import('./firewall/plugin.ts'),
    () => import('./firewall/about.ts'),
  ),
  flannel: row(
    () => import('./flannel/plugin.ts'),
    () => import('./flannel/about.ts'),
  ),
  'host-device': row(
    () => import('./host-device/plugin.ts'),
    () => import('./host-device/about.ts'),
  ),
  'host-local': row(
    () => import('./host-local/plugin.ts'),
    () => import('./host-local/about.ts'),
  ),
  ipvlan: row(
    () => import('./ipvlan/plugin.ts'),
    () => import('./ipvlan/about.ts'),
  ),
  loopback: row(
    () => import('./loopback/plugin.ts'),
    () => import('./loopback/about.ts'),
  ),
  macvlan: row(
    () => import('./macvlan/plugin.ts'),
    () => import('./macvlan/about.ts'),
  ),
  portmap: row(
    () => import('./portmap/plugin.ts'),
    () => import('./portmap/about.ts'),
  ),
  ptp: row(
    () => import('./ptp/plugin.ts'),
    () => import('./ptp/about.ts'),
  ),
  sbr: row(
    () => import('./sbr/plugin.ts'),
    () => import('./sbr/about.ts'),
  ),
  static: row(
    () => import('./static/plugin.ts'),
    () => import('./static/about.ts'),
  ),
  tap: row(
    () => import('./tap/plugin.ts'),
    () => import('./tap/about.ts'),
  ),
  tuning: row(
    () => import('./tuning/plugin.ts'),
    () => import('./tuning/about.ts'),
  ),
  vlan: row(
    () => import('./vlan/plugin.ts'),
    () => import('./vlan/about.ts'),
  ),
  vrf: row(
    () => import('./vrf/plugin.ts'),
    () => import('./vrf/about.ts'),
  ),
  whereabouts: row(
    () => import('./whereabouts/plugin.ts'),
    () => import('./whereabouts/about.ts'),
  ),
} satisfies Readonly<Record<string, RegisteredPlugin>>;

export type PluginName = keyof typeof PLUGINS;

export const PLUGIN_NAMES = Object.keys(PLUGINS).sort() as PluginName[];

/** The command, which is the delegate runner when a runtime calls it; its options are in the folder of the same name. */
export const RUNNER_NAME = 'catena' as const;

/** Names under which the executable is the delegate runner and nothing else: those of multus without and with its daemon. */
export const RUNNER_ALIASES: readonly string[] = ['multus', 'multus-shim'];

/** Whether the executable is the delegate runner under this name. */
export function isRunner(name: string): boolean {
  return name === RUNNER_NAME || RUNNER_ALIASES.includes(name);
}

/** `bun plugins/main.ts --as bridge` calls a plugin without compiling. */
export const AS_FLAG = '--as';

/** The delegate runner: not a plugin of a chain, and it can be given what the process already has. */
export const RUNNER = {
  load: async (surroundings?: Omit<RunnerSurroundings, 'findAbout'>) =>
    (await import('./catena/plugin.ts')).runnerIn({ findAbout: loadAbout, ...surroundings }),
  about: async () => (await import('./catena/about.ts')).about,
} satisfies RegisteredPlugin;

export type KnownType = PluginName | typeof RUNNER_NAME;

export const KNOWN_TYPES: readonly KnownType[] = [...PLUGIN_NAMES, RUNNER_NAME].sort();

/** Whether a name is one of {@link PLUGINS}. */
export function isPluginName(name: string): name is PluginName {
  return Object.hasOwn(PLUGINS, name);
}

/** Loads a plugin of a chain. @returns undefined if it is not ours */
export function loadPlugin(name: string): Promise<PluginDefinition> | undefined {
  return isPluginName(name) ? PLUGINS[name].load() : undefined;
}

/** Loads what tools know about a plugin or the delegate runner. @returns undefined if it is not ours */
export function loadAbout(name: KnownType): Promise<PluginAbout>;
export function loadAbout(name: string): Promise<PluginAbout> | undefined;
export function loadAbout(name: string): Promise<PluginAbout> | undefined {
  if (name === RUNNER_NAME) return RUNNER.about();
  return isPluginName(name) ? PLUGINS[name].about() : undefined;
}
