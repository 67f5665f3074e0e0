// What in the kernel carries the name of an attachment to a network?
import { type AttachmentId, digestOf, findOwner } from '../cni/attachment.ts';
import { renderIp } from '../net/ip.ts';
import type { FieldValue } from '../netlink/nft/datatype.ts';
import { renderFields } from '../netlink/nft/datatype.ts';
import type { NotedElement } from '../netlink/nft/noted.ts';
import { listIngressFilters } from '../netlink/rtnl/filter.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import { NETLINK_ROUTE } from '../netlink/socket.ts';
import type { Tables } from '../netlink/tables.ts';
import type { Evidence, FoundTrace, Trace, Witnesses } from './trace.ts';

/** Devices whose alias, and elements whose comment, name an attachment to the network. */
export function listKernelTraces(tables: Tables, network: string): FoundTrace[] {
  return [...tracesOfDevices(tables, network), ...tracesOfElements(tables, network)];
}

/** Indexes of devices to which others redirect all incoming packets. */
export function findRedirectTargets(tables: Tables): ReadonlySet<number> {
  const hooks = tables.qdiscs.filter(({ kind }) => kind === 'ingress' || kind === 'clsact');
  const filters = tables.ask(NETLINK_ROUTE, socket =>
    hooks.flatMap(({ index }) => listIngressFilters(socket, index)),
  );
  return new Set(filters.flatMap(filter => filter.redirectAllTo ?? []));
}

function tracesOfDevices({ links }: Tables, network: string): FoundTrace[] {
  return links.flatMap(link => {
    const owner = findOwner(link.attrs.alias);
    if (owner?.network !== network) return [];
    const what = `device "${link.name}" of kind "${link.kind}"`;
    return { owner, what, judge: witnesses => judgeDevice(link, witnesses) };
  });
}

function judgeDevice(
  { index, kind }: Link,
  { farEnds, isLedTo }: Witnesses,
): Pick<Trace, 'evidence' | 'why'> {
  if (kind === 'ifb') {
    return isLedTo(index)
      ? { evidence: 'used', why: 'packets are redirected to it' }
      : unused('no packets are redirected to it');
  }
  const path = farEnds.get(index);
  if (path !== undefined) return { evidence: 'used', why: `its peer is in namespace "${path}"` };
  return unused('its peer is in no namespace that has a process or a name');
}

function tracesOfElements({ ownElements }: Tables, network: string): FoundTrace[] {
  return ownElements.flatMap(element => {
    const owner = findOwner(element.comment);
    if (owner?.network !== network) return [];
    const { table, set, key } = element;
    const what = `element ${renderFields(key)} of "${set}" in table ${table.family} ${table.name}`;
    return { owner, what, judge: witnesses => judgeElement(element, owner, witnesses) };
  });
}

/** Judges an element by the addresses in its key: they are the container's, or the host's, which prove nothing. */
function judgeElement(
  { key }: NotedElement,
  owner: AttachmentId,
  { holderOf, lesseeOf }: Witnesses,
): Pick<Trace, 'evidence' | 'why'> {
  const addresses = key.filter(isAddress).map(ip => renderIp(ip));
  const found = addresses.map((address): Pick<Trace, 'evidence' | 'why'> => {
    const lessee = lesseeOf(address);
    if (lessee && !isSame(lessee, owner))
      return unused(`${address} is now leased to container "${lessee.containerId}"`);
    const holder = holderOf(address);
    return holder === undefined ? unused(`no interface has ${address}`) : { evidence: 'used', why: holder };
  });
  const silent = { evidence: 'silent' as Evidence, why: 'it does not show whether the attachment exists' };
  return found.find(({ evidence }) => evidence === 'used') ?? found[0] ?? silent;
}

function unused(why: string): Pick<Trace, 'evidence' | 'why'> {
  return { evidence: 'unused', why };
}

function isSame(a: Pick<AttachmentId, 'containerId' | 'ifname'>, b: AttachmentId): boolean {
  const isContainer = a.containerId === b.containerId || `~${digestOf(a.containerId)}` === b.containerId;
  return isContainer && a.ifname === b.ifname;
}

function isAddress(value: FieldValue): value is Exclude<FieldValue, number | string> {
  return typeof value === 'object';
}
