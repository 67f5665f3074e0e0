// Which plugins do we ship? One row per folder here, per executable in dist/bin, and per row of the README's table.
//
// Every start loads this file, so a row only says how to load a plugin: a call loads `plugin.ts`, a tool loads `about.ts`.
import type { PluginAbout } from '../src/cni/plugin-about.ts';
import type { PluginDefinition } from '../src/plugin/define.ts';
import type { RunnerSurroundings } from './catena/runner.ts';

/** How a plugin is loaded. */
interface RegisteredPlugin {
  /** What it does. */
  readonly load: () => Promise<PluginDefinition>;
  /** What tools know about it; a call of the plugin never loads this. */
  readonly about: () => Promise<PluginAbout>;
}

/** Every plugin of a chain, by name; each name is a hard link to the one compiled binary. */
export const PLUGINS = {
  bandwidth: {
    load: async () => (await import('./bandwidth/plugin.ts')).bandwidth,
    about: async () => (await import('./bandwidth/about.ts')).about,
  },
  bridge: {
    load: async () => (await import('./bridge/plugin.ts')).bridge,
    about: async () => (await import('./bridge/about.ts')).about,
  },
  cluster: {
    load: async () => (await import('./cluster/plugin.ts')).cluster,
    about: async () => (await import('./cluster/about.ts')).about,
  },
  dhcp: {
    load: async () => (await import('./dhcp/plugin.ts')).dhcp,
    about: async () => (await import('./dhcp/about.ts')).about,
  },
  dummy: {
    load: async () => (await import('./dummy/plugin.ts')).dummy,
    about: async () => (await import('./dummy/about.ts')).about,
  },
  firewall: {
    load: async () => (await import('./firewall/plugin.ts')).firewall,
    about: async () => (await import('./firewall/about.ts')).about,
  },
  flannel: {
    load: async () => (await import('./flannel/plugin.ts')).flannel,
    about: async () => (await import('./flannel/about.ts')).about,
  },
  'host-device': {
    load: async () => (await import('./host-device/plugin.ts')).hostDevice,
    about: async () => (await import('./host-device/about.ts')).about,
  },
  'host-local': {
    load: async () => (await import('./host-local/plugin.ts')).hostLocal,
    about: async () => (await import('./host-local/about.ts')).about,
  },
  ipvlan: {
    load: async () => (await import('./ipvlan/plugin.ts')).ipvlan,
    about: async () => (await import('./ipvlan/about.ts')).about,
  },
  loopback: {
    load: async () => (await import('./loopback/plugin.ts')).loopback,
    about: async () => (await import('./loopback/about.ts')).about,
  },
  macvlan: {
    load: async () => (await import('./macvlan/plugin.ts')).macvlan,
    about: async () => (await import('./macvlan/about.ts')).about,
  },
  portmap: {
    load: async () => (await import('./portmap/plugin.ts')).portmap,
    about: async () => (await import('./portmap/about.ts')).about,
  },
  ptp: {
    load: async () => (await import('./ptp/plugin.ts')).ptp,
    about: async () => (await import('./ptp/about.ts')).about,
  },
  sbr: {
    load: async () => (await import('./sbr/plugin.ts')).sbr,
    about: async () => (await import('./sbr/about.ts')).about,
  },
  static: {
    load: async () => (await import('./static/plugin.ts')).staticIpam,
    about: async () => (await import('./static/about.ts')).about,
  },
  tap: {
    load: async () => (await import('./tap/plugin.ts')).tap,
    about: async () => (await import('./tap/about.ts')).about,
  },
  tuning: {
    load: async () => (await import('./tuning/plugin.ts')).tuning,
    about: async () => (await import('./tuning/about.ts')).about,
  },
  vlan: {
    load: async () => (await import('./vlan/plugin.ts')).vlan,
    about: async () => (await import('./vlan/about.ts')).about,
  },
  vrf: {
    load: async () => (await import('./vrf/plugin.ts')).vrf,
    about: async () => (await import('./vrf/about.ts')).about,
  },
  whereabouts: {
    load: async () => (await import('./whereabouts/plugin.ts')).whereabouts,
    about: async () => (await import('./whereabouts/about.ts')).about,
  },
} satisfies Readonly<Record<string, RegisteredPlugin>>;

/** A key of {@link PLUGINS}. */
export type PluginName = keyof typeof PLUGINS;

/** The names of {@link PLUGINS}, sorted. */
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

/** A type of which tools know something. */
export type KnownType = PluginName | typeof RUNNER_NAME;

/** Every {@link KnownType}, sorted. */
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
