// Which list has the properties that a user asked for?

import type { JsonObject } from '../../cni/json.ts';
import type { NetworkKind, PluginAbout, PluginCatalog } from '../../cni/plugin-about.ts';
import { IFNAME_MAX_BYTES } from '../../net/interface.ts';
import { renderCidr } from '../../net/ip.ts';
import type { Addressing } from './subnets.ts';

/** A network as asked for. */
export interface Wish {
  readonly name: string;
  readonly kind: NetworkChoice;
  readonly addressing: Addressing;
  /** Of the node: what the network builds on; undefined for that of the default route. */
  readonly device: string | undefined;
  /** Ports may be published. */
  readonly ports: boolean;
  /** Rates may be limited. */
  readonly rates: boolean;
}

/** The version that containerd 1.6, CRI-O and podman 4 read as well; nothing here needs a later one. */
const VERSION = '1.0.0';

/** The capabilities of CONVENTIONS.md behind ports and rates. */
const CAPABILITIES = { ports: 'portMappings', rates: 'bandwidth' } as const;

/** The list, ready to be written. @param ownDevice a name that no device has */
export function composeList(wish: Wish, offers: Offers, ownDevice: string): JsonObject {
  const { name, kind, addressing, device, ports } = wish;
  const ipam = offers.ipamFor(addressing);
  const subnets = typeof addressing === 'string' ? [] : addressing;
  const first = { type: kind.type, ...kind.configure({ ipam, subnets, ownDevice, device, ports }) };
  const more = (['ports', 'rates'] as const).filter(extra => wish[extra]);
  return {
    cniVersion: VERSION,
    name,
    plugins: [first, ...more.map(extra => offers.forCapability(CAPABILITIES[extra]))],
  };
}

/** A name for a device of the network that no device has, `cni-<network>` as far as it fits. */
export function nameDevice(network: string, existing: ReadonlySet<string>): string {
  const plain = network.replaceAll(/[^a-zA-Z0-9-]/g, '');
  for (let i = 1; ; i++) {
    const ending = i === 1 ? '' : String(i);
    const name = `cni-${plain}`.slice(0, IFNAME_MAX_BYTES - ending.length) + ending;
    if (!existing.has(name)) return name;
  }
}

/** What was asked for, in a phrase. */
export function describeWish({ kind, addressing, ports, rates, device }: Wish): string {
  const more = [...(ports ? ['published ports'] : []), ...(rates ? ['limited rates'] : [])];
  const on = device === undefined ? '' : ` on "${device}"`;
  return [`${kind.name}${on}`, describeAddressing(addressing), ...more].join(', ');
}

function describeAddressing(addressing: Addressing): string {
  if (addressing === 'none') return 'no addresses';
  if (addressing === 'server') return 'addresses of the DHCP server';
  return `addresses of ${addressing.map(renderCidr).join(' and ')}`;
}

/** A kind of network, and the type of the plugin that its list begins with. */
export interface NetworkChoice extends NetworkKind {
  readonly type: string;
}

/** What the plugins of this executable offer to lists. */
interface Offers {
  /** By type of plugin; the first is the default. */
  readonly kinds: readonly NetworkChoice[];
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
