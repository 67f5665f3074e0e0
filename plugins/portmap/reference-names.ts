// Which names does the reference plugin use for its chains and tables?
import type { AttachmentId } from '../../src/cni/attachment.ts';
import type { Table } from '../../src/netlink/nft/message.ts';

/** Chains of the table "nat" that all containers share. */
export const SHARED = {
  dnat: 'CNI-HOSTPORT-DNAT',
  setMark: 'CNI-HOSTPORT-SETMARK',
  masquerade: 'CNI-HOSTPORT-MASQ',
  /** Used by releases before packet marks were introduced. */
  snat: 'CNI-HOSTPORT-SNAT',
} as const;

/** Hexadecimal digits that fit into a chain's name after its prefix. */
const HASH_DIGITS = 21;
const KEY_DIGITS = 15;
/** linux/netfilter/xt_comment.h, XT_MAX_COMMENT_LEN, less the terminating zero. */
const COMMENT_MAX_BYTES = 255;

/** What the chains of a container are named after: its interfaces on one network share them. */
export type ChainOwner = Pick<AttachmentId, 'network' | 'containerId'>;

/** The chain with the ports of a container. */
export function dnatChain(owner: ChainOwner): string {
  return `CNI-DN-${hash(owner)}`;
}

/** What an interface's own chain is named after, if another interface of the container already has {@link dnatChain}. */
export function soleOwner({ network, containerId, ifname }: AttachmentId): ChainOwner {
  // Container ids contain no slash, so the name is unique.
  return { network, containerId: `${containerId}/${ifname}` };
}

/** A short form of {@link dnatChain} for places limited to fifteen characters. */
export function chainKey(owner: ChainOwner): string {
  return hash(owner).slice(0, KEY_DIGITS);
}

/** The chain in which old releases masqueraded. */
export function snatChainOf(owner: ChainOwner): string {
  return `CNI-SN-${hash(owner)}`;
}

/** The comment of the rules that jump to the chain of a container. */
export function entryComment({ network, containerId }: ChainOwner): string {
  const words = `dnat name: "${network}" id: "${containerId}"`;
  return words.length <= COMMENT_MAX_BYTES ? words : `${words.slice(0, COMMENT_MAX_BYTES - 3)}...`;
}

/** The container that a comment names; undefined for other comments and for truncated ones. */
export function ownerIn(comment: string | undefined): ChainOwner | undefined {
  const [, network, containerId] = /^dnat name: "([^"]*)" id: "([^"]*)"$/.exec(comment ?? '') ?? [];
  return network !== undefined && containerId !== undefined ? { network, containerId } : undefined;
}

/** The table of the reference's nf_tables backend. */
export function hostportTable(family: 4 | 6): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'cni_hostport' };
}

function hash({ network, containerId }: ChainOwner): string {
  const digits = new Bun.CryptoHasher('sha512').update(network + containerId).digest('hex');
  return digits.slice(0, HASH_DIGITS);
}
