// Which plugins do we ship? One name per folder here, per executable in dist/bin, and per row of the README's table.

/** The name of every plugin, sorted; each is a hard link to the one compiled binary. */
export const PLUGIN_NAMES = [
  'bandwidth',
  'bridge',
  'firewall',
  'flannel',
  'host-local',
  'loopback',
  'portmap',
  'ptp',
  'sbr',
  'static',
  'tuning',
] as const;

/** One of {@link PLUGIN_NAMES}. */
export type PluginName = (typeof PLUGIN_NAMES)[number];

/** The command, which is the delegate runner when a runtime calls it; its options are in the folder of the same name. */
export const RUNNER_NAME = 'catena';
