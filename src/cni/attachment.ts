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
 * hold a slash.
 */
export function renderOwner({ network, containerId, ifname }: Attachment): string {
  return `${PREFIX}${network}/${containerId}/${ifname}`;
}

/** The attachment a note names, or undefined when the note is somebody else's. */
export function findOwner(note: string | undefined): Attachment | undefined {
  if (!note?.startsWith(PREFIX)) return undefined;
  const [network, containerId, ifname, ...more] = note.slice(PREFIX.length).split('/');
  if (!network || !containerId || !ifname || more.length) return undefined;
  return { network, containerId, ifname };
}
