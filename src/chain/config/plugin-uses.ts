// Which executables does a list call, and for which of its entries?
import { isObject, memberOf } from '../../cni/json.ts';
import type { Conflist } from './conflist.ts';

/** An executable that an entry of a list needs. */
export interface PluginUse {
  readonly type: string;
  /** The entry's index in the list, from 0. */
  readonly index: number;
  /** `link`: the entry itself. `ipam`, `delegate`: what it calls for addresses, or instead of itself. */
  readonly as: 'link' | 'ipam' | 'delegate';
}

/** Every executable by name, in the order of the entries; one that several entries need is listed for each. */
export function listUses({ plugins }: Pick<Conflist, 'plugins'>): PluginUse[] {
  return plugins.flatMap(({ type, conf }, index) => {
    const called = (['ipam', 'delegate'] as const).flatMap((as): PluginUse[] => {
      const section = memberOf(conf, as);
      const own = isObject(section) ? memberOf(section, 'type') : undefined;
      return typeof own === 'string' && own ? [{ type: own, index, as }] : [];
    });
    return [{ type, index, as: 'link' as const }, ...called];
  });
}
