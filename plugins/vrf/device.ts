// How is the VRF device found, made and removed?

import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { FAMILIES } from '../../src/net/ip.ts';
import {
  findLink,
  type Link,
  listLinks,
  makeLink,
  removeLink,
  setLink,
} from '../../src/netlink/rtnl/link.ts';
import { listRoutes } from '../../src/netlink/rtnl/route.ts';
import { addL3mdevRule, listRules } from '../../src/netlink/rtnl/rule.ts';
import {
  addUnreachableDefault,
  listUnreachableDefaults,
  removeUnreachableDefault,
} from '../../src/netlink/rtnl/unreachable.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { VrfOptions } from './config.ts';
import { freeTable } from './plan.ts';

/** Alias of a VRF whose table ends with a refusing route. One that the reference has made lacks both, and is intact nevertheless. */
const ALIAS = 'catena: VRF';
/** Attempts to get a table that no other program takes at the same moment. */
const TABLE_ATTEMPTS = 10;

/** A VRF and the routing table of its members. */
export interface Vrf {
  readonly link: Link;
  readonly table: number;
}

/**
 * The VRF of that name, if there is one.
 * @throws CniError 7 when a device of another kind has the name
 */
export function findVrf(socket: NetlinkSocket, name: string): Vrf | undefined {
  const link = findLink(socket, name);
  if (link === undefined) return undefined;
  const table = tableOf(link);
  if (table !== undefined) return { link, table };
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use "${name}" as VRF: a device of that name exists and is ${link.kind ? `of kind "${link.kind}"` : 'not a VRF'}`,
  );
}

/** The VRF that an interface is a member of. */
export function vrfOf(socket: NetlinkSocket, { master }: Link): Vrf | undefined {
  const link = master === 0 ? undefined : findLink(socket, master);
  const table = link && tableOf(link);
  return link && table !== undefined ? { link, table } : undefined;
}

/**
 * Returns the VRF, up, with the rule that leads to its table and a last route there that refuses what no other takes. A missing one is
 * created. Registers its own undo steps. Call under the namespace's lock.
 * @throws CniError 7 when the name or the table belongs to another device
 */
export function ensureVrf(call: Call, { name, table }: VrfOptions): Vrf {
  const { container } = call;
  const vrf = findVrf(container, name) ?? createVrf(call, name, table);
  if (table !== undefined && table !== vrf.table) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use VRF "${name}" with table ${table}: it exists with table ${vrf.table}`,
    );
  }
  completeVrf(call, vrf);
  return vrf;
}

function completeVrf(call: Call, { link, table }: Vrf): void {
  const { container } = call;
  const { alias } = link.attrs;
  setLink(container, link.index, { up: true, ...(alias ? {} : { alias: ALIAS }) });
  if (!alias) call.onFailure('remove an alias', () => setLink(container, link.index, { alias: '' }));
  const rules = listRules(container);
  for (const family of FAMILIES) {
    if (!rules.some(rule => rule.isL3mdev && rule.family === family)) addL3mdevRule(container, family);
    if (listUnreachableDefaults(container, family).includes(table)) continue;
    addUnreachableDefault(container, family, table);
    call.onFailure('remove a refusing route', () => removeUnreachableDefault(container, family, table));
  }
}

/** @throws Error naming what is missing of what {@link ensureVrf} completed, if it did */
export function checkVrf(socket: NetlinkSocket, { link, table }: Vrf): void {
  const rules = listRules(socket);
  for (const family of FAMILIES) {
    const led = rules.some(rule => rule.isL3mdev && rule.family === family);
    confirm(`IPv${family} rule for VRFs`, true, led);
    if (link.attrs.alias !== ALIAS) continue;
    const refusing = listUnreachableDefaults(socket, family).includes(table);
    confirm(`unreachable IPv${family} default route in table ${table} of "${link.name}"`, true, refusing);
  }
}

/** Removes a VRF without members, as the reference does, even one that others made. Call under the namespace's lock. */
export function removeUnusedVrf(socket: NetlinkSocket, { link, table }: Vrf): void {
  const links = listLinks(socket);
  const isGone = !links.some(({ index }) => index === link.index);
  if (isGone || links.some(({ master }) => master === link.index)) return;
  // They name no device, so the kernel leaves them.
  for (const family of FAMILIES) removeUnreachableDefault(socket, family, table);
  removeLink(socket, link.index);
}

function createVrf(call: Call, name: string, wanted: number | undefined): Vrf {
  const { container } = call;
  for (let attempt = 1; ; attempt++) {
    const before = listVrfs(container);
    const holder = before.find(({ table }) => table === wanted);
    if (holder) {
      throw new CniError(
        ErrorCode.invalidConfig,
        `Cannot create VRF "${name}" with table ${wanted}: VRF "${holder.link.name}" has that table`,
      );
    }
    const table = wanted ?? chooseTable(container, before);
    const link = makeLink(container, { name, kind: 'vrf', vrfTable: table });
    const raced = link ? undefined : findVrf(container, name);
    if (raced) return raced;
    if (link === undefined) continue;
    const vrf = { link, table };
    call.onFailure(`remove VRF "${name}"`, () => removeUnusedVrf(container, vrf));
    // The lock keeps our own plugins apart. Another program may have chosen the same table: the older device keeps it.
    const rival = listVrfs(container).find(one => one.table === table && one.link.index < link.index);
    if (rival === undefined || wanted !== undefined || attempt === TABLE_ATTEMPTS) return vrf;
    removeLink(container, link.index);
  }
}

function chooseTable(socket: NetlinkSocket, present: readonly Vrf[]): number {
  const refusing = FAMILIES.flatMap(family => listUnreachableDefaults(socket, family));
  return freeTable({
    vrfs: present.map(({ table }) => table),
    rules: listRules(socket),
    routes: [...listRoutes(socket), ...refusing.map(table => ({ table }))],
  });
}

function listVrfs(socket: NetlinkSocket): Vrf[] {
  return listLinks(socket).flatMap(link => {
    const table = tableOf(link);
    return table === undefined ? [] : { link, table };
  });
}

function tableOf({ kind, attrs: { linkinfo } }: Link): number | undefined {
  const data = linkinfo?.data;
  if (kind !== 'vrf' || data === undefined || data instanceof Uint8Array) return undefined;
  return 'table' in data ? data.table : undefined;
}
