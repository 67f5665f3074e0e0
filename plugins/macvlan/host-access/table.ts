// Which packets may enter the host through its own macvlan, and which attachment uses that device?
//
// The device has the link of the master, so it would be a second way into the host, past rules that name the master. It is open to
// the addresses of the pods that asked for it. The elements that say so are also the count of the device's users.
import { noteOf } from '../../../src/attach/handle.ts';
import type { AttachmentId } from '../../../src/cni/attachment.ts';
import type { Ip } from '../../../src/net/ip.ts';
import type { Entry } from '../../../src/netlink/nft/entries.ts';
import type { Table } from '../../../src/netlink/nft/message.ts';
import type { NftSet } from '../../../src/netlink/nft/set.ts';
import type { Skeleton } from '../../../src/netlink/nft/skeleton.ts';

/** The table of our own that holds everything below. */
const TABLE: Table = { family: 'inet', name: 'catena_host_access' };

/** Devices that {@link PODS} restricts; an element belongs to the device, not to an attachment. */
export const DEVICES: NftSet = { table: TABLE, name: 'devices', key: ['ifname'] };

/** Device of the host, and address of a pod behind it. */
export const PODS: Readonly<Record<4 | 6, NftSet>> = {
  4: { table: TABLE, name: 'pods4', key: ['ifname', 'ipv4_addr'] },
  6: { table: TABLE, name: 'pods6', key: ['ifname', 'ipv6_addr'] },
};

/** The sets whose elements belong to one attachment each. */
export const OWNED_SETS: readonly NftSet[] = [PODS[4], PODS[6]];

/** linux/netfilter_ipv4.h, NF_IP_PRI_RAW: before connections are tracked. */
const NF_IP_PRI_RAW = -300;

export const SKELETON: Skeleton = {
  table: TABLE,
  comment: 'catena: what the macvlans of the host accept',
  sets: [DEVICES, ...OWNED_SETS],
  chains: [
    {
      name: 'prerouting',
      base: { type: 'filter', hook: 'prerouting', priority: NF_IP_PRI_RAW },
      rules: [
        'iifname @devices iifname . ip saddr != @pods4 drop',
        // Neighbour discovery.
        'iifname @devices ip6 saddr fe80::/10 accept',
        'iifname @devices iifname . ip6 saddr != @pods6 drop',
      ],
    },
  ],
};

/** The element that restricts a device. */
export function deviceEntry(device: string): Entry {
  return { set: DEVICES, element: { key: [device], comment: 'catena: host access' } };
}

/** The elements by which an attachment uses a device. */
export function podEntries(owner: AttachmentId, device: string, ips: readonly Ip[]): Entry[] {
  const comment = noteOf(owner);
  return ips.map(ip => ({ set: PODS[ip.family], element: { key: [device, ip], comment } }));
}
