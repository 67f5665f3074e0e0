// By which names does the reference plugin keep what it makes?
import type { Attachment } from '../../src/cni/attachment.ts';
import type { Table } from '../../src/netlink/nft/message.ts';

/** Chains of the table "nat" that every container shares. */
export const SHARED = {
  dnat: 'CNI-HOSTPORT-DNAT',
  setMark: 'CNI-HOSTPORT-SETMARK',
  masquerade: 'CNI-HOSTPORT-MASQ',
  /** Of releases before marks were used. */
  snat: 'CNI-HOSTPORT-SNAT',
} as const;

/** Hexadecimal digits that fit a chain's name behind its prefix. */
const HASH_DIGITS = 21;
const KEY_DIGITS = 15;
/** linux/netfilter/xt_comment.h, XT_MAX_COMMENT_LEN, less the zero at the end. */
const COMMENT_MAX_BYTES = 255;

/** What the chains of a container are named after: interfaces of one container on one network share them. */
export type ChainOwner = Pick<Attachment, 'network' | 'containerId'>;

/** The chain with the ports of a container. */
export function dnatChain(owner: ChainOwner): string {
  return `CNI-DN-${hash(owner)}`;
}

/** What the chain of one interface is named after, where another one of the container has {@link dnatChain}. */
export function soleOwner({ network, containerId, ifname }: Attachment): ChainOwner {
  // No container id holds a slash: the name is nobody else's.
  return { network, containerId: `${containerId}/${ifname}` };
}

/** What stands for {@link dnatChain} where there is room for fifteen characters. */
export function chainKey(owner: ChainOwner): string {
  return hash(owner).slice(0, KEY_DIGITS);
}

/** The chain that old releases masqueraded in. */
export function snatChainOf(owner: ChainOwner): string {
  return `CNI-SN-${hash(owner)}`;
}

/** What the rules say that lead to the chain of a container. */
export function entryComment({ network, containerId }: ChainOwner): string {
  const words = `dnat name: "${network}" id: "${containerId}"`;
  return words.length <= COMMENT_MAX_BYTES ? words : `${words.slice(0, COMMENT_MAX_BYTES - 3)}...`;
}

/** The container that a comment names; undefined for others, and where the comment was cut. */
export function ownerIn(comment: string | undefined): ChainOwner | undefined {
  const [, network, containerId] = /^dnat name: "([^"]*)" id: "([^"]*)"$/.exec(comment ?? '') ?? [];
  return network !== undefined && containerId !== undefined ? { network, containerId } : undefined;
}

/** The table of the reference's backend for nf_tables. */
export function hostportTable(family: 4 | 6): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'cni_hostport' };
}

function hash({ network, containerId }: ChainOwner): string {
  const digits = new Bun.CryptoHasher('sha512').update(network + containerId).digest('hex');
  return digits.slice(0, HASH_DIGITS);
}
