// Which settings of a device go with it into a container, or are lost on the way, and how does it get its own back?
import { attrs, type Field, s32, u8, u32 } from '../../src/netlink/codec/attrs.ts';
import { Writer } from '../../src/netlink/codec/bytes.ts';
import { type Link, linkSettingRequest } from '../../src/netlink/rtnl/link.ts';
import type { Request } from '../../src/netlink/socket.ts';

/**
 * linux/if_link.h: IFLA_LINKMODE, IFLA_PROTO_DOWN, IFLA_GSO_MAX_SEGS and _SIZE, IFLA_GRO_MAX_SIZE, IFLA_GSO_IPV4_MAX_SIZE,
 * IFLA_GRO_IPV4_MAX_SIZE
 */
const PLAIN = [17, 39, 40, 41, 58, 63, 64];
const IFLA_GROUP = 27;
const IFLA_AF_SPEC = 26;
const IFLA_XDP = 43;

/** IFLA_AF_SPEC: how IPv6 makes addresses is what a program sets, of all that the kernel tells there. */
const afSpec = attrs('families', { inet6: [10, attrs('IPv6', { addrGenMode: [8, u8] })] });

/** IFLA_XDP */
const xdp = attrs('XDP', { fd: [1, s32], flags: [3, u32], program: [4, u32] });
/** linux/if_link.h: where a program can be: XDP_FLAGS_SKB_MODE, _DRV_MODE, _HW_MODE */
const XDP_PLACES = [2, 4, 8];

/** The attributes of the kernel by their numbers, as base64. */
export function readSettings({ attrs: own }: Link): Record<string, string> {
  const raw = (type: number) => own.unknown?.find(one => one.type === type)?.bytes;
  const families = raw(IFLA_AF_SPEC);
  const { addrGenMode } = (families && afSpec.decode(families, {}).inet6) ?? {};
  const found: (readonly [number, Uint8Array | undefined])[] = [
    ...PLAIN.map(type => [type, raw(type)] as const),
    [IFLA_GROUP, own.group === undefined ? undefined : encode(u32, own.group)],
    [IFLA_AF_SPEC, addrGenMode === undefined ? undefined : encode(afSpec, { inet6: { addrGenMode } })],
  ];
  return Object.fromEntries(
    found.flatMap(([type, bytes]) => (bytes ? [[type, Buffer.from(bytes).toString('base64')]] : [])),
  );
}

/** The requests that change what differs from the record. */
export function settingRequests(link: Link, settings: Readonly<Record<string, string>>): Request[] {
  const now = readSettings(link);
  return Object.entries(settings).flatMap(([type, bytes]) => {
    if (now[type] === bytes) return [];
    return linkSettingRequest(link.index, { type: Number(type), bytes: Buffer.from(bytes, 'base64') });
  });
}

/** The program that runs for each packet; 0 for none. */
export function programOf({ attrs: own }: Link): number {
  const bytes = own.unknown?.find(one => one.type === IFLA_XDP)?.bytes;
  return (bytes && xdp.decode(bytes, {}).program) || 0;
}

/** The requests that remove a container's program, which would see, change and redirect the host's packets. */
export function programRequests(link: Link, own: number): Request[] {
  if (programOf(link) === own) return [];
  return XDP_PLACES.map(flags =>
    linkSettingRequest(link.index, { type: IFLA_XDP, bytes: encode(xdp, { fd: -1, flags }) }),
  );
}

function encode<T>(field: Field<T>, value: T): Uint8Array {
  const writer = new Writer();
  field.encode(writer, value, {});
  return writer.take();
}
