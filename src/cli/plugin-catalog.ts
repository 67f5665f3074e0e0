// Which plugins does a command that examines lists know?
import type { PluginCatalog } from '../cni/plugin-about.ts';
import type { CommandCall } from './command.ts';
import { withForeign } from './foreign/catalog.ts';
import { pluginDirsOf, warn } from './target.ts';

/** Ours, and those of others that have a schema beside their executable. Warns of a schema that cannot be used. */
export function catalogOf(call: CommandCall): PluginCatalog {
  return withForeign(call.plugins, pluginDirsOf(call), problem => warn(call, problem));
}
