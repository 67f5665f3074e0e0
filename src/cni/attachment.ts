// What names an attachment, also in names and notes in the kernel (aliases, comments)?

import { findIfnameProblem } from '../net/interface.ts';
import { invalidConfig } from './errors.ts';

/** What identifies an attachment on a node (SPEC "Terminology"). */
export interface AttachmentId {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
}

/** What is wrong with a container id (or a network name, same rule), or undefined. SPEC "Parameters". */
export function findContainerIdProblem(id: string): string | undefined {
  if (/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(id) && !id.endsWith('\n')) return undefined;
  return 'it must start with a letter or digit and contain only letters, digits, "_", "." and "-"';
}

/** Its name alone, of something that says more of it. */
export function toId({ network, containerId, ifname }: AttachmentId): AttachmentId {
  return { network, containerId, ifname };
}

export function describeAttachment({ network, containerId, ifname }: AttachmentId): string {
  return `interface "${ifname}" of container "${containerId}" on network "${network}"`;
}

export function sameAttachment(a: AttachmentId, b: AttachmentId): boolean {
  return a.network === b.network && a.containerId === b.containerId && a.ifname === b.ifname;
}

/** Identifies an attachment among those of all networks. */
export function keyOf({ network, containerId, ifname }: AttachmentId): string {
  return `${network}\n${containerId}\n${ifname}`;
}

/** As podman and docker shorten ids, which have 64 digits; names that people chose are left alone. */
export function shortId(id: string): string {
  return /^[\da-f]{32,}$/.test(id) ? id.slice(0, 12) : id;
}

/** As `catena add` and cnitool derive an id from the path of a namespace. */
const DERIVED = /^cnitool-[\da-f]{20}$/;

/** What people call a container whose id was derived from a namespace of `ip netns`: the name of that namespace. */
export function derivedNameOf({
  containerId,
  netns,
}: {
  containerId: string;
  netns: string;
}): string | undefined {
  return DERIVED.test(containerId) ? /\/netns\/([^/]+)$/.exec(netns)?.[1] : undefined;
}

/** Prefix of our own notes; other software may use the same fields. */
const PREFIX = 'catena:';

/**
 * Renders the attachment as one line, `catena:network/container/ifname`, for link aliases and comments. None of the parts can
 * contain a slash. If the line would be longer than `maxLength`, a digest replaces the container id. Therefore compare
 * rendered lines, not container ids.
 */
export function renderOwner({ network, containerId, ifname }: AttachmentId, maxLength = Infinity): string {
  const line = `${PREFIX}${network}/${containerId}/${ifname}`;
  return line.length <= maxLength ? line : `${PREFIX}${network}/~${digestOf(containerId)}/${ifname}`;
}

/** Whether two ids are of one container: either may be from such a line. */
export function isSameContainer(one: string, other: string): boolean {
  const isDigest = (id: string, whole: string) => id.startsWith('~') && id === `~${digestOf(whole)}`;
  return one === other || isDigest(one, other) || isDigest(other, one);
}

/** The attachment that a note names, or undefined when the note is not ours. */
export function findOwner(note: string | undefined): AttachmentId | undefined {
  if (!note?.startsWith(PREFIX)) return undefined;
  const [network, containerId, ifname, ...more] = note.slice(PREFIX.length).split('/');
  if (!network || !containerId || !ifname || more.length) return undefined;
  return { network, containerId, ifname };
}

/**
 * A short stand-in for a long name: 128-bit FNV-1a as 32 hexadecimal digits. It distinguishes ids chosen by runtimes and
 * needs no module. A cryptographic hash is unnecessary: only the runtime chooses ids, and it gains nothing from a collision.
 * A part of it must be the last digits: the first ones hardly depend on the end of the text.
 */
export function digestOf(text: string): string {
  const mask = (1n << 128n) - 1n;
  let hash = 0x6c62272e07bb014262b821756295c58dn;
  for (const byte of new TextEncoder().encode(text))
    hash = ((hash ^ BigInt(byte)) * 0x1000000000000000000013bn) & mask;
  return hash.toString(16).padStart(32, '0');
}

// Which name does a device have until it has its alias?
//
// The kernel accepts an alias only for a device that exists, and an ADD may be killed before it sets one. So a new device gets a
// name that only its attachment has, by which DEL recognises it.

/** Name of the host end of a veth pair, which keeps it; in the format of the reference's random names. */
export function hostEndName(owner: AttachmentId): string {
  return `veth${digestOf(renderOwner(owner)).slice(-8)}`;
}

/** Name of a device in the container until it gets its final one together with the alias: 15 characters, as many as the kernel allows. */
export function interimName(owner: AttachmentId): string {
  return `new${digestOf(renderOwner(owner)).slice(-12)}`;
}

/** Longest file name, in bytes (NAME_MAX of linux/limits.h), less what a temporary name adds. */
const MAX_BYTES = 200;

/** Directory name of a network: its own name, or `~` and a digest if that is unsafe or too long. */
export function directoryOf(network: string): string {
  return findContainerIdProblem(network) === undefined && network.length <= MAX_BYTES
    ? network
    : `~${digestOf(network)}`;
}

export function fileNameOf({ containerId, ifname }: Pick<AttachmentId, 'containerId' | 'ifname'>): string {
  const safe = findContainerIdProblem(containerId) === undefined && findIfnameProblem(ifname) === undefined;
  const name = `${containerId}:${ifname}`;
  // Valid names begin with a letter or digit, so none looks like a digest, and no digest like a name.
  return safe && name.length <= MAX_BYTES ? name : `~${digestOf(`${containerId}\0${ifname}`)}`;
}

/**
 * The entry of an attachment in a directory of libcni's.
 * @throws CniError 7 when a part is empty or would escape the directory
 */
export function cacheFileOf(dir: string, { network, containerId, ifname }: AttachmentId): string {
  if ([network, containerId, ifname].every(part => part !== '' && !/[/\0]/.test(part))) {
    return `${dir.replace(/\/+$/, '')}/results/${network}-${containerId}-${ifname}`;
  }
  throw invalidConfig(
    `Cannot build the name of the cached result: it needs a network ("${network}"), a container id ("${containerId}") and an interface ("${ifname}"), without "/"`,
  );
}
