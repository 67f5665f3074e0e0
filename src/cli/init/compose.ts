// Which list has the properties that a user asked for?
import type { JsonObject } from '../../cni/json.ts';
import { renderCidr } from '../../net/cidr.ts';
import { IFNAME_MAX_BYTES } from '../../net/ifname.ts';
import type { Kind, Offers } from './kinds.ts';
import type { Addressing } from './subnets.ts';

/** A network as asked for. */
export interface Wish {
  readonly name: string;
  readonly kind: Kind;
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
