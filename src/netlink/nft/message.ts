// What is the common structure of nf_tables messages, and how are several changes applied as one?

import { Errno } from '../../sys/errno.ts';
import {
  type AttrSet,
  attrs,
  type Layout,
  layout,
  NLM_F_CREATE,
  type Request,
  struct,
  u8,
  u16be,
  u32be,
} from '../codec.ts';
import { isNetlinkError, type NetlinkSocket } from '../socket.ts';
import { traced } from '../trace.ts';

/** linux/netfilter.h: the families that a table can belong to, by nft's names. */
export const NFPROTO = { inet: 1, ip: 2, arp: 3, netdev: 5, bridge: 7, ip6: 10 } as const;

/** The family of a message by nft's name; undefined for others. */
export function familyOf(number: number): keyof typeof NFPROTO | undefined {
  return TABLE_FAMILIES.find(name => NFPROTO[name] === number);
}

const TABLE_FAMILIES = Object.keys(NFPROTO) as (keyof typeof NFPROTO)[];

/** linux/netfilter/nfnetlink.h: struct nfgenmsg { __u8 nfgen_family; __u8 version; __be16 res_id; } */
export const nfgenmsg = struct('nfgenmsg', [
  ['family', u8],
  ['version', u8],
  ['resId', u16be],
]);

/** linux/netfilter/nfnetlink.h */
const NFNL_SUBSYS_NFTABLES = 10;
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;

/** linux/netfilter/nf_tables.h, enum nf_tables_msg_types */
export const NftMsg = {
  NEWTABLE: 0,
  GETTABLE: 1,
  DELTABLE: 2,
  NEWCHAIN: 3,
  GETCHAIN: 4,
  DELCHAIN: 5,
  NEWRULE: 6,
  GETRULE: 7,
  DELRULE: 8,
  NEWSET: 9,
  GETSET: 10,
  DELSET: 11,
  NEWSETELEM: 12,
  GETSETELEM: 13,
  DELSETELEM: 14,
  NEWGEN: 15,
  GETGEN: 16,
} as const;

/**
 * Id of a set within a batch, which the kernel requires. It is used only when no set has the name that a rule gives, and our
 * rules name existing sets. So one id is enough for all.
 */
export const SET_ID = 1;

/** Name of a family; `inet` covers both IPv4 and IPv6. */
export type NftFamily = keyof typeof NFPROTO;

/** Identifies a table, through which all of its contents are addressed. */
export interface Table {
  readonly family: NftFamily;
  readonly name: string;
}

/**
 * The messages about one kind of nf_tables object: header and attributes.
 * @param kind in the kernel's spelling, for traces: `TABLE`
 */
export function nftLayout<A extends object>(kind: string, set: AttrSet<A>): Layout<{ family: number }, A> {
  const messages = Object.entries(NftMsg).filter(([name]) => name.slice('NEW'.length) === kind);
  const names = messages.map(([name, message]) => [nftType(message), `NFT_MSG_${name}`]);
  return traced('NETLINK_NETFILTER', Object.fromEntries(names), layout(nfgenmsg, set));
}

/** Message type of an nf_tables message. */
export function nftType(message: number): number {
  return (NFNL_SUBSYS_NFTABLES << 8) | message;
}

/** A change for a batch. A request to create tolerates existing objects unless `flags` include NLM_F_EXCL. */
export function nftRequest<A extends object>(
  op: string,
  message: number,
  format: Layout<{ family: number }, A>,
  family: NftFamily,
  attributes: A,
  flags = isNew(message) ? NLM_F_CREATE : 0,
): Request {
  const body = format.encode({ family: NFPROTO[family] }, attributes);
  return { op, type: nftType(message), flags, body };
}

/** linux/netfilter/nfnetlink.h, enum nfnl_batch_attributes */
const batchAttrs = attrs('batch', { generation: [1, u32be] });

const batchMessage = traced(
  'NETLINK_NETFILTER',
  { [NFNL_MSG_BATCH_BEGIN]: 'NFNL_MSG_BATCH_BEGIN', [NFNL_MSG_BATCH_END]: 'NFNL_MSG_BATCH_END' },
  layout(nfgenmsg, batchAttrs),
);

/** The message that opens a transaction. With a generation, the kernel refuses it (ERESTART) if the generation is outdated. */
export function batchBegin(generation?: number): Request {
  const body = batchMessage.encode(
    { resId: NFNL_SUBSYS_NFTABLES },
    generation === undefined ? {} : { generation },
  );
  return { op: 'begin a transaction', type: NFNL_MSG_BATCH_BEGIN, body };
}

/** The message that commits a transaction. */
export function batchEnd(): Request {
  const body = batchMessage.encode({ resId: NFNL_SUBSYS_NFTABLES }, {});
  return { op: 'commit a transaction', type: NFNL_MSG_BATCH_END, body };
}

/** `inet catena`, human-readable. */
export function renderTable(table: Table): string {
  return `"${table.family} ${table.name}"`;
}

function isNew(message: number): boolean {
  const created: readonly number[] = [
    NftMsg.NEWTABLE,
    NftMsg.NEWCHAIN,
    NftMsg.NEWRULE,
    NftMsg.NEWSET,
    NftMsg.NEWSETELEM,
  ];
  return created.includes(message);
}

/** Each attempt takes well below a millisecond; other software changes the rule set often, but not constantly. */
const ATTEMPTS = 100;

/** linux/netfilter/nf_tables.h, enum nft_gen_attributes */
const generationMessage = nftLayout('GEN', attrs('generation', { id: [1, u32be] }));

/**
 * Applies changes in order as one transaction: all or none. Sends nothing if there are no changes.
 * @throws NetlinkError of the first change that the kernel refused
 * Same as: `nft -f`
 */
export function commit(socket: NetlinkSocket, changes: readonly Request[]): void {
  if (changes.length) socket.transaction(batchBegin(), changes, batchEnd());
}

/**
 * Reads, decides and applies as one step. If the rule set was changed in between, everything is retried.
 * @param decide reads what it needs and returns the changes; may run several times, and may throw
 * @throws NetlinkError of the first change that the kernel refused
 */
export function commitAfterReading(socket: NetlinkSocket, decide: () => readonly Request[]): void {
  for (let attempt = 1; ; attempt++) {
    const generation = readGeneration(socket);
    const changes = decide();
    if (changes.length === 0) return;
    try {
      socket.transaction(batchBegin(generation), changes, batchEnd());
      return;
    } catch (thrown) {
      if (!isNetlinkError(thrown, Errno.ERESTART) || attempt === ATTEMPTS) throw thrown;
    }
  }
}

/**
 * Asks the kernel whether it would apply the changes, without applying them.
 * @throws NetlinkError of the first change that the kernel would refuse
 * Same as: `nft -c -f`
 */
export function tryOut(socket: NetlinkSocket, changes: readonly Request[]): void {
  // The kernel checks a batch without an end like any other, and then discards it.
  socket.transaction(batchBegin(), changes);
}

/** The rule set's generation number, which grows with every transaction of any program. */
function readGeneration(socket: NetlinkSocket): number {
  const request = nftRequest('read the rule set generation', NftMsg.GETGEN, generationMessage, 'inet', {});
  const body = socket.find({ ...request, isQuestion: true }, []);
  return body ? (generationMessage.decode(body).attrs.id ?? 0) : 0;
}
