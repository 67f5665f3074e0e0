// Are the plugins in an order that can work?
import { atValue } from './document.ts';
import type { Finding } from './finding.ts';
import type { PlacedNetwork, PlacedPlugin } from './network.ts';

/** Finds plugins in the wrong position; the right position of a third-party plugin is unknown. */
export function judgeOrder({ plugins }: PlacedNetwork): Finding[] {
  return plugins.flatMap((placed, index) => {
    const finding = judgePlace(placed, index, plugins);
    return finding === undefined ? [] : [finding];
  });
}

function judgePlace(
  placed: PlacedPlugin,
  index: number,
  plugins: readonly PlacedPlugin[],
): Finding | undefined {
  const { document, path, plugin, conf } = placed;
  if (plugin?.about === undefined) return undefined;
  const { type, about } = plugin;
  if (about.follows?.(conf)) return undefined;
  const say = (severity: 'error' | 'warning', message: string) =>
    atValue(document, [...path, 'type'], [severity, 'order', message]);
  if (about.kind === 'ipam') {
    return say(
      'warning',
      `"${type}" assigns addresses: it belongs in "ipam" of the plugin that creates the interface`,
    );
  }
  if (about.kind === 'meta' && index === 0) {
    const main = plugins.find(other => other.plugin?.about?.kind === 'main');
    const where = main === undefined ? 'a plugin that creates the interface' : `"${main.plugin?.type}"`;
    return say(
      'error',
      `"${type}" needs the result of an earlier plugin, but there is none: put it after ${where}`,
    );
  }
  // After meta plugins only, it is those that are in the wrong position.
  if (about.kind === 'main' && plugins.slice(0, index).some(other => other.plugin?.about?.kind !== 'meta')) {
    const earlier = plugins[index - 1]?.plugin?.type ?? 'another plugin';
    return say('warning', `"${type}" creates its own interface: it should be first, not after "${earlier}"`);
  }
  return undefined;
}
