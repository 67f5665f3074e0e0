// Whose is an address, a hardware address, a port, a device, a rule or a container id?
import { join } from 'node:path';
import { findOwner, renderOwner } from '../cni/attachment.ts';
import { visitNamespaces } from '../ipam/holders.ts';
import { isLease } from '../ipam/lease-files.ts';
import { findOwnerOf } from '../ipam/range-use.ts';
import { findCidr, findIp, renderIp } from '../net/ip.ts';
import { type FieldValue, renderFields } from '../netlink/nft/table.ts';
import { Tables } from '../netlink/tables.ts';
import { findNetnsIdentity } from '../sys/netns-identity.ts';
import type { NodeAttachment, NodeModel, NodeNetwork } from './model.ts';
import { isBelow } from './words.ts';

export interface Owned {
  /** Undefined if no attachment on record is the owner. */
  readonly attachment: NodeAttachment | undefined;
  /** Human-readable: `interface "eth0" in namespace "/run/netns/web", process nginx (4711)`. */
  readonly evidence: readonly string[];
}

/** A query, as far as it can be read as each kind. */
interface Query {
  readonly text: string;
  readonly ip: string | undefined;
  readonly mac: string | undefined;
  readonly port: number | undefined;
  readonly protocol: string | undefined;
  readonly handle: bigint | undefined;
}

/** An id is recognised by this many of its first characters. */
const LEAST_OF_ID = 4;

/**
 * Searches the model, then leases, the packet filter and every namespace. Attachments on record come first.
 * @param text an address, a hardware address, `8080`, `:8080` or `8080/udp`, a device, `handle 12`, a pod, a name, or the beginning of a container id
 */
export function findWho(node: NodeModel, text: string): Owned[] {
  const query = parseQuery(text.trim());
  const found: (readonly [NodeAttachment | undefined, string])[] = [
    ...node.attachments.flatMap(one => recordedIn(one, query).map(evidence => [one, evidence] as const)),
    ...node.networks.flatMap(network => leasesIn(node, network, query)),
    ...findMarks(new Tables(), query).map(({ what, comment }) => {
      const owner = ownerIn(node, comment);
      return [owner, owner ? what : `${what}, ${describeComment(comment)}`] as const;
    }),
    ...interfacesFor(query).map(one => [attachmentAt(node, one), describeInterface(one)] as const),
  ];
  const owners = new Set(found.map(([attachment]) => attachment));
  owners.delete(undefined);
  const evidenceFor = (attachment: NodeAttachment | undefined): string[] => [
    ...new Set(found.flatMap(([owner, evidence]) => (owner === attachment ? evidence : []))),
  ];
  return [
    ...[...owners].map(attachment => ({ attachment, evidence: evidenceFor(attachment) })),
    ...evidenceFor(undefined).map(evidence => ({ attachment: undefined, evidence: [evidence] })),
  ];
}

function parseQuery(text: string): Query {
  // As results and ip(8) show it, with the length of its prefix.
  const ip = findIp(text) ?? findCidr(text)?.ip;
  const [, digits, protocol] = /^:?(\d{1,5})(?:\/(tcp|udp|sctp))?$/.exec(text) ?? [];
  const [, handle] = /^(?:handle )?(\d+)$/.exec(text) ?? [];
  return {
    text,
    ip: ip && renderIp(ip),
    mac: /^([\da-f]{2}:){5}[\da-f]{2}$/i.test(text) ? text.toLowerCase() : undefined,
    port: digits === undefined ? undefined : Number(digits),
    protocol,
    handle: handle === undefined ? undefined : BigInt(handle),
  };
}

/** What the model says: the result of ADD, the devices, the ports and the names. */
function recordedIn(one: NodeAttachment, { text, ip, mac, port, protocol }: Query): string[] {
  const { device, hostDevice, containerId } = one;
  const isOwn = (address: string) => ip !== undefined && address.split('/')[0] === ip;
  const ports = one.ports.filter(
    mapped => mapped.hostPort === port && (protocol === undefined || mapped.protocol === protocol),
  );
  const pod = one.podName === undefined ? undefined : `${one.podNamespace}/${one.podName}`;
  const isName = [pod, one.podName, one.containerName].includes(text);
  const isId = text === containerId || (text.length >= LEAST_OF_ID && containerId.startsWith(text));
  const relation = isBelow(one) ? 'device below' : 'other end of';
  return [
    ...one.addresses.filter(isOwn).map(address => `the result of its ADD has ${address}`),
    ...(mac && device?.mac === mac ? [`its interface "${device.name}" has it`] : []),
    ...(mac && hostDevice?.mac === mac ? [`its device "${hostDevice.name}" on the host has it`] : []),
    ...(hostDevice?.name === text ? [`"${text}" is the ${relation} its interface "${one.ifname}"`] : []),
    ...ports.map(
      mapped => `${mapped.protocol} port ${port} of the host leads to its port ${mapped.containerPort}`,
    ),
    ...(isName ? ['its runtime named it so'] : []),
    ...(isId ? [`its container id is "${containerId}"`] : []),
  ];
}

function leasesIn(
  node: NodeModel,
  { name, leaseDirs }: NodeNetwork,
  { ip }: Query,
): (readonly [NodeAttachment | undefined, string])[] {
  if (ip === undefined || !isLease(ip)) return [];
  return leaseDirs.flatMap(dir => {
    const owner = findOwnerOf(dir, ip);
    if (owner === undefined) return [];
    const { containerId, ifname } = owner;
    const attachment = node.attachments.find(one => {
      const isIt = one.network === name && one.containerId === containerId;
      return isIt && (ifname === undefined || one.ifname === ifname);
    });
    const words = `"${join(dir, ip)}" leases it to container "${containerId}"`;
    return [[attachment, attachment ? words : `${words}, which has no attachment on record`] as const];
  });
}

function interfacesFor(query: Query): FoundInterface[] {
  const { ip, mac, text, port, handle } = query;
  if (ip !== undefined || mac !== undefined) return findInterfaces(query);
  return port === undefined && handle === undefined ? findInterfaces(query, text) : [];
}

/** By its own comment or alias; those too long for a container id have a digest of it. */
function ownerIn(node: NodeModel, comment: string | undefined): NodeAttachment | undefined {
  if (comment === undefined || findOwner(comment) === undefined) return undefined;
  return node.attachments.find(({ network, containerId, ifname }) =>
    [undefined, comment.length].some(
      length => renderOwner({ network, containerId, ifname }, length) === comment,
    ),
  );
}

function describeComment(comment: string | undefined): string {
  return comment === undefined
    ? 'which all attachments share, or which is not ours'
    : `with the comment "${comment}"`;
}

/** An interface is that of an attachment by its alias, or if it is in the namespace of one. */
function attachmentAt(node: NodeModel, { alias, identity, ifname, isHost }: FoundInterface) {
  const owner = ownerIn(node, alias);
  if (owner !== undefined || isHost) return owner;
  const inside = node.attachments.filter(
    ({ netns }) => identity !== undefined && findNetnsIdentity(netns) === identity,
  );
  return inside.find(one => one.ifname === ifname) ?? inside[0];
}

function describeInterface({ ifname, netns, isHost, pids, alias }: FoundInterface): string {
  const owner = findOwner(alias) ? `, with the alias "${alias}"` : '';
  if (isHost) return `device "${ifname}" of the host${owner}`;
  const [pid] = pids;
  const more = pids.length > 1 ? ` and ${pids.length - 1} more` : '';
  const process = pid === undefined ? 'no process' : `process ${pid}${more}`;
  return `interface "${ifname}" in namespace "${netns}", with ${process}${owner}`;
}

/** An element or a rule, and the comment that names its owner. */
interface Mark {
  /** Human-readable: `element 6 . 8080 of "dnat" in table inet catena_portmap`. */
  readonly what: string;
  readonly comment: string | undefined;
}

/**
 * Elements with a comment in our tables whose key has one of the values, and rules of any table with the handle, as `nft -a` shows
 * it: handles are only unique in their table. None without the right to read the packet filter.
 * @param ip canonical text
 */
function findMarks(tables: Tables, { ip, port, handle }: Pick<Query, 'ip' | 'port' | 'handle'>): Mark[] {
  try {
    const elements = ip === undefined && port === undefined ? [] : tables.ownElements;
    const rules = handle === undefined ? [] : tables.nftRules.filter(({ attrs }) => attrs.handle === handle);
    const isOf = (one: FieldValue) => (typeof one === 'object' ? renderIp(one) === ip : one === port);
    return [
      ...elements.flatMap(({ key, set, table: { family, name }, comment }) => {
        const what = `element ${renderFields(key)} of "${set}" in table ${family} ${name}`;
        return key.some(isOf) ? [{ what, comment }] : [];
      }),
      ...rules.map(({ table: { family, name }, attrs: { chain, comment } }) => {
        return { what: `rule ${handle} of chain "${chain}" in table ${family} ${name}`, comment };
      }),
    ];
  } catch {
    return [];
  }
}

interface FoundInterface {
  readonly ifname: string;
  /** A path to its namespace, and what identifies it. */
  readonly netns: string;
  readonly identity: string | undefined;
  /** Process ids in it, ascending. */
  readonly pids: readonly number[];
  /** In the namespace of this process. */
  readonly isHost: boolean;
  readonly alias: string | undefined;
}

/** Looks into every namespace that a process is in or a name refers to, and that this process may enter. */
function findInterfaces({ ip, mac }: Pick<Query, 'ip' | 'mac'>, name?: string): FoundInterface[] {
  const found: FoundInterface[] = [];
  visitNamespaces(({ path, pids, socket, hostId }) => {
    const tables = new Tables((_, talk) => talk(socket));
    const addresses = ip === undefined ? [] : tables.addresses;
    const withIp = addresses.flatMap(({ cidr, index }) => (renderIp(cidr.ip) === ip ? index : []));
    for (const { index, name: ifname, mac: own, attrs } of tables.links) {
      if (!withIp.includes(index) && (mac === undefined || own !== mac) && ifname !== name) continue;
      const isHost = hostId === undefined;
      const identity = findNetnsIdentity(path);
      found.push({ ifname, netns: path, identity, pids, isHost, alias: attrs.alias });
    }
  });
  return found;
}
