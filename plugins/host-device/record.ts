// What was a device like before a container got it, and who has it now?
//
// The record is written before the device is moved. The alias of the device says the same of its name alone: that is all that the
// reference has, and stays for its DEL. Records are in the run directory, because after a restart of the machine every device is at
// home under the name that the kernel and udev give it.
import { join } from 'node:path';
import * as z from 'zod/mini';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { runDir } from '../../src/cni/directories.ts';
import { bootId } from '../../src/files/boot-id.ts';
import { namesIfThere } from '../../src/files/names-in.ts';
import { putFile } from '../../src/files/put-file.ts';
import { tryRead } from '../../src/files/read-file.ts';
import { removeFile } from '../../src/files/remove-file.ts';
import { findCidr } from '../../src/net/cidr.ts';
import { findIfnameProblem } from '../../src/net/ifname.ts';
import { isIp } from '../../src/net/ip.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const ifname = z.string().check(z.refine(name => findIfnameProblem(name) === undefined));
const cidr = z.string().check(z.refine(text => findCidr(text) !== undefined));
const ip = z.string().check(z.refine(isIp));
const number = z.int().check(z.minimum(0), z.maximum(0xffffffff));

/** An address that the device had. */
export const RecordedAddress = z.object({
  address: cidr,
  /** RT_SCOPE_* of linux/rtnetlink.h. */
  scope: number,
  broadcast: z.optional(ip),
  label: z.optional(z.string().check(z.maxLength(15))),
  /** IFA_F_* of linux/if_addr.h. */
  flags: number,
});
export type RecordedAddress = z.output<typeof RecordedAddress>;

/** A route through the device; numbers as in linux/rtnetlink.h. */
export const RecordedRoute = z.object({
  dst: cidr,
  gateway: z.optional(ip),
  source: z.optional(ip),
  table: number,
  scope: number,
  priority: z.optional(number),
  mtu: z.optional(number),
  advmss: z.optional(number),
  protocol: z.optional(number),
});
export type RecordedRoute = z.output<typeof RecordedRoute>;

/** A rule that was copied into the container. */
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
  kind: z.string(),
  mac: z.optional(z.string()),
  /** The address that is burnt in; devices of software have none. */
  permanentMac: z.optional(z.string()),
  /** The device that it belongs to, such as a PCI function; devices of software have none. */
  parent: z.optional(z.object({ bus: z.optional(z.string()), name: z.string() })),
  altNames: z.array(z.string()),
  alias: z.optional(z.string()),
  up: z.boolean(),
  mtu: number,
  txqlen: z.optional(number),
  addresses: z.array(RecordedAddress),
  routes: z.array(RecordedRoute),
  /** Rules that the container got with `useInterfaceNetwork`. */
  rules: z.array(RecordedRule),
});
export type DeviceRecord = z.output<typeof DeviceRecord>;

/** The directory of all records. */
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

/** The record in a text; undefined if it is none. */
export function parseRecord(text: string): DeviceRecord | undefined {
  try {
    const parsed = z.safeParse(DeviceRecord, JSON.parse(text));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
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
