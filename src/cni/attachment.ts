// How is an attachment named in the places where the kernel lets us leave a note?

/** What identifies an attachment on a node (SPEC "Terminology"). */
export interface Attachment {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
}

/** Start of every note that is ours: others may use the same place. */
const PREFIX = 'catena:';

/**
 * The attachment as one line: `catena:network/container/ifname`, for link aliases and comments. None of the parts can
 * hold a slash. Where the line would be longer than `maxLength`, a digest stands for the container id: compare lines
 * with lines, not ids.
 */
export function renderOwner({ network, containerId, ifname }: Attachment, maxLength = Infinity): string {
  const line = `${PREFIX}${network}/${containerId}/${ifname}`;
  return line.length <= maxLength ? line : `${PREFIX}${network}/~${digestOf(containerId)}/${ifname}`;
}

/** The attachment a note names, or undefined when the note is somebody else's. */
export function findOwner(note: string | undefined): Attachment | undefined {
  if (!note?.startsWith(PREFIX)) return undefined;
  const [network, containerId, ifname, ...more] = note.slice(PREFIX.length).split('/');
  if (!network || !containerId || !ifname || more.length) return undefined;
  return { network, containerId, ifname };
}

/**
 * A short stand-in for a long name: FNV-1a with 128 bits, as 32 hexadecimal digits. It tells apart ids that runtimes
 * chose, and costs no module. Nobody gains anything by finding two ids with the same digest: only the runtime gives them.
 */
export function digestOf(text: string): string {
  const mask = (1n << 128n) - 1n;
  let hash = 0x6c62272e07bb014262b821756295c58dn;
  for (const byte of new TextEncoder().encode(text))
    hash = ((hash ^ BigInt(byte)) * 0x1000000000000000000013bn) & mask;
  return hash.toString(16).padStart(32, '0');
}
