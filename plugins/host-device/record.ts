// What was a device like before a container got it, and who has it now?
//
// The record is written before the device is moved. The alias of the device says the same of its name alone: that is all that the
// reference has, and stays for its DEL. Records are in the run directory, because after a restart of the machine every device is at
// home under the name that the kernel and udev give it.

import { join } from 'node:path';
import * as z from 'zod/mini';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { runDir } from '../../src/cni/directories.ts';
import { attempt } from '../../src/cni/errors.ts';
import { tryParse } from '../../src/cni/json.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { putFile, removeFile } from '../../src/files/put-file.ts';
import { namesIfThere, tryRead } from '../../src/files/read-file.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';
import { findCidr } from '../../src/net/ip.ts';
import { decodeAddress } from '../../src/netlink/rtnl/addr.ts';
import { type Link, listLinks } from '../../src/netlink/rtnl/link.ts';
import { decodeRoute } from '../../src/netlink/rtnl/route.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { withPluginLock } from '../../src/plugin/lock.ts';
import { inNetns, type Netns } from '../../src/sys/netns.ts';
import { listDeviceNodes } from '../../src/sys/sysctl.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const ifname = z.string().check(z.refine(name => findIfnameProblem(name) === undefined));
const cidr = z.string().check(z.refine(text => findCidr(text) !== undefined));
const number = z.int().check(z.minimum(0), z.maximum(0xffffffff));

/** A message of the kernel, sent back as it is apart from the device's index: base64, and the same as text for people who read the record. */
function kept(decode: (message: Uint8Array) => unknown) {
  const isReadable = (text: string) => attempt(() => decode(Buffer.from(text, 'base64'))) !== undefined;
  return z.object({ what: z.string(), message: z.string().check(z.refine(isReadable)) });
}

/** An address that the device had: RTM_NEWADDR. */
const KeptAddress = kept(decodeAddress);

/** A route through the device, or from one of its addresses: RTM_NEWROUTE. */
const KeptRoute = kept(decodeRoute);

export const RecordedRule = z.object({ from: cidr, table: number, priority: number });
export type RecordedRule = z.output<typeof RecordedRule>;

/** What is known of a device that a container has. */
export const DeviceRecord = z.object({
  /** Never used again: tells this ADD from a later one of the same attachment. */
  id: z.string(),
  boot: z.string(),
  network: z.string(),
  containerId: z.string(),
  /** Name in the container. */
  ifname,
  netns: z.object({
    path: z.string(),
    /** Tells the namespace from a later one at the same path; absent before Linux 5.14. */
    cookie: z.optional(z.string()),
  }),
  /** Name on the host, which is also the alias that the device has in the container. */
  name: ifname,
  ifindex: number,
  /** Number of its directory in sysfs, which no other device has (sys/sysctl.ts). */
  node: z.string(),
  kind: z.string(),
  mac: z.optional(z.string()),
  /** The address that is burnt in; devices of software have none. */
  permanentMac: z.optional(z.string()),
  /** The device that it belongs to, such as a PCI function; devices of software have none. */
  parent: z.optional(z.object({ bus: z.optional(z.string()), name: z.string() })),
  altNames: z.array(z.string()),
  alias: z.optional(z.string()),
  /** IFF_* of linux/if.h. */
  flags: number,
  mtu: number,
  txqlen: z.optional(number),
  /** Further attributes of the kernel by their numbers, base64: group, offload sizes. */
  settings: z.record(z.string().check(z.regex(/^\d{1,3}$/)), z.string()),
  /** Program that the driver ran for each packet; 0 for none. */
  xdp: number,
  addresses: z.array(KeptAddress),
  routes: z.array(KeptRoute),
  /** Rules that the container got with `useInterfaceNetwork`. */
  rules: z.array(RecordedRule),
});
export type DeviceRecord = z.output<typeof DeviceRecord>;

export function recordDirOf(env: Environment = process.env): string {
  return join(runDir(env), 'host-device');
}

/** The record of an attachment; undefined if there is none, or none of this boot that can be read. */
export function findRecord(env: Environment, attachment: AttachmentId): DeviceRecord | undefined {
  const record = readRecord(env, fileOf(env, attachment));
  return record && isOf(record, attachment) ? record : undefined;
}

/** Every record of this boot. @throws CniError 5 when the directory cannot be read */
export function listRecords(env: Environment): DeviceRecord[] {
  const dir = recordDirOf(env);
  return namesIfThere(dir, 'records').flatMap(name =>
    name.endsWith('.json') ? (readRecord(env, join(dir, name)) ?? []) : [],
  );
}

/** Writes a record, which replaces an earlier one of the attachment. @throws CniError 5 */
export function writeRecord(env: Environment, record: DeviceRecord): void {
  putFile(fileOf(env, record), JSON.stringify(record, null, 1), { what: 'record of a device' });
}

/** Removes a record, unless a later one has replaced it. @throws CniError 5 */
export function removeRecord(env: Environment, record: DeviceRecord): void {
  const path = fileOf(env, record);
  if (readRecord(env, path)?.id === record.id) removeFile(path, 'record of a device');
}

/** Removes the file of an attachment that has no record of this boot that can be read. @throws CniError 5 */
export function removeUnreadable(env: Environment, attachment: AttachmentId): void {
  const path = fileOf(env, attachment);
  if (readRecord(env, path) === undefined) removeFile(path, 'record of a device');
}

/** Removes the network's records of an earlier boot: every device is at home since. @throws CniError 5 */
export function removeOutdated(env: Environment, network: string): void {
  const dir = recordDirOf(env);
  for (const name of namesIfThere(dir, 'records')) {
    const path = join(dir, name);
    const record = name.endsWith('.json') ? parseRecord(tryRead(path) ?? '') : undefined;
    if (record?.network === network && record.boot !== bootId(env)) removeFile(path, 'record of a device');
  }
}

export function parseRecord(text: string): DeviceRecord | undefined {
  const parsed = z.safeParse(DeviceRecord, tryParse(text));
  return parsed.success ? parsed.data : undefined;
}

function readRecord(env: Environment, path: string): DeviceRecord | undefined {
  const record = parseRecord(tryRead(path) ?? '');
  return record?.boot === bootId(env) ? record : undefined;
}

function isOf(record: DeviceRecord, { network, containerId, ifname: name }: AttachmentId): boolean {
  return record.network === network && record.containerId === containerId && record.ifname === name;
}

function fileOf(env: Environment, { containerId, ifname: name }: AttachmentId): string {
  return join(recordDirOf(env), `${containerId}_${name}.json`);
}

/**
 * Runs a step during which no other process of ours moves the device. Records and devices must be looked up in it.
 * @throws CniError 11 when the lock is not available in time
 */
export function withDeviceLock<T>(
  env: Environment,
  { parent, node }: Pick<DeviceRecord, 'parent' | 'node'>,
  step: () => T,
): T {
  // A device whose driver was loaded again has another number, and the same place.
  const device = parent === undefined ? `device-${node}` : `${parent.bus ?? 'bus'}-${parent.name}`;
  const file = `${device.replaceAll(/[^\w:.-]/g, '_')}.lock`;
  return withPluginLock(`${recordDirOf(env)}/${file}`, step, true);
}

// A container can give a device that it makes any name, alias, hardware address, index and kind, and it can make a second macvlan
// beside its first. So hardware is known by its place on the bus, and a function with several ports also by the address that is
// burnt in; everything else by the number that its directory in sysfs has.

export interface Inside {
  readonly socket: NetlinkSocket;
  readonly netns: Netns;
}

/** What tells one device from every other. */
export type Identity = Pick<DeviceRecord, 'name' | 'parent' | 'permanentMac' | 'node'>;

/** The device that it belongs to, such as a PCI function; software has none. */
export function parentOf({ attrs }: Pick<Link, 'attrs'>): DeviceRecord['parent'] {
  const { parentDevName: name, parentDevBusName: bus } = attrs;
  return name === undefined ? undefined : { bus, name };
}

/**
 * What tells a device on the host from every other.
 * @throws SystemError for a device of software, if sysfs cannot be mounted
 */
export function identify({ index, attrs }: Link): Pick<DeviceRecord, 'parent' | 'node'> {
  const parent = parentOf({ attrs });
  try {
    return { parent, node: listDeviceNodes().find(one => one.index === index)?.node ?? '' };
  } catch (thrown) {
    if (parent) return { parent, node: '' };
    throw thrown;
  }
}

/** The device of a record in the container that has it, whatever the container has changed. */
export function findInContainer({ socket, netns }: Inside, identity: Identity): Link | undefined {
  return findAmong(socket, identity, () => inNetns(netns, listDeviceNodes));
}

export function findOnHost(host: NetlinkSocket, identity: Identity): Link | undefined {
  return findAmong(host, identity, listDeviceNodes);
}

export function isDeviceOf(link: Link, node: string, record: Identity): boolean {
  return record.parent ? isHardwareOf(link, record) : node !== '' && node === record.node;
}

function findAmong(
  socket: NetlinkSocket,
  identity: Identity,
  listNodes: typeof listDeviceNodes,
): Link | undefined {
  const links = listLinks(socket);
  if (identity.parent) return links.find(link => isHardwareOf(link, identity));
  const found = listNodes().find(({ node }) => node === identity.node);
  return found && links.find(({ index }) => index === found.index);
}

/** Whether the device still has the alias that ADD set: then it came back by other means than a DEL. */
export function isMarked({ attrs }: Link, { name }: Pick<DeviceRecord, 'name'>): boolean {
  return attrs.alias === name;
}

/** The kernel moves hardware to the initial namespace when its namespace ends, and deletes everything else. */
export function isHardware({ parent, kind }: DeviceRecord): boolean {
  return parent !== undefined || kind === '';
}

function isHardwareOf({ attrs, name: ownName }: Link, { parent, permanentMac, name }: Identity): boolean {
  if (attrs.parentDevName !== parent?.name || attrs.parentDevBusName !== parent?.bus) return false;
  return permanentMac === undefined
    ? attrs.alias === name || ownName === name
    : attrs.permAddress === permanentMac;
}
