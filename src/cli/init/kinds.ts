// Which kinds of networks can be written, and which plugins add what to them?
import type { JsonObject } from '../../cni/json.ts';
import type { NetworkKind } from '../../cni/network-kind.ts';
import type { PluginAbout, PluginCatalog } from '../../cni/plugin-about.ts';
import type { Addressing } from './subnets.ts';

/** A kind of network, and the type of the plugin that its list begins with. */
export interface Kind extends NetworkKind {
  readonly type: string;
}

/** What the plugins of this executable offer to lists. */
export interface Offers {
  /** By type of plugin; the first is the default. */
  readonly kinds: readonly Kind[];
  /** The plugin that serves a capability for a container whose interface exists. */
  readonly forCapability: (capability: string) => JsonObject;
  /** Configuration of an IPAM plugin; undefined for no addresses. */
  readonly ipamFor: (addressing: Addressing) => JsonObject | undefined;
}

/** Asks each plugin. */
export async function readOffers({ types, find }: Pick<PluginCatalog, 'types' | 'find'>): Promise<Offers> {
  const found = await Promise.all(types.map(async type => ({ type, about: await find(type) })));
  const abouts = found.flatMap(({ type, about }) => (about ? [{ type, about }] : []));
  return {
    kinds: abouts.flatMap(({ type, about }) => (about.networkKinds ?? []).map(kind => ({ ...kind, type }))),
    forCapability(capability) {
      const { type } = must(
        abouts.find(({ about }) => serves(about, capability)),
        capability,
      );
      return { type, capabilities: { [capability]: true } };
    },
    ipamFor(addressing) {
      if (addressing === 'none') return undefined;
      const confs = abouts.map(({ about }) => about.ipamFor?.(addressing));
      return must(
        confs.find(conf => conf !== undefined),
        'addresses',
      );
    },
  };
}

function serves({ kind, capabilities }: PluginAbout, capability: string): boolean {
  return kind === 'meta' && capabilities.includes(capability);
}

function must<T>(found: T | undefined, what: string): T {
  if (found !== undefined) return found;
  throw new Error(`Cannot write a list with ${what}: no plugin of this executable serves it`);
}
