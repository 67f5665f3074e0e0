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
import { isNetlinkError, type NetlinkSocket, type Question, tolerating } from '../socket.ts';
import { traced } from '../trace.ts';

/** linux/netfilter.h: the families that a table can belong to, by nft's names. */
export const NFPROTO = { inet: 1, ip: 2, arp: 3, netdev: 5, bridge: 7, ip6: 10 } as const;

export const IP_NFPROTO = { 4: NFPROTO.ip, 6: NFPROTO.ip6 } as const;

/** Name of a family; `inet` covers both IPv4 and IPv6. */
export type NftFamily = keyof typeof NFPROTO;

/** The family of a message by nft's name; undefined for others. */
function familyOf(number: number): NftFamily | undefined {
  return (Object.keys(NFPROTO) as NftFamily[]).find(name => NFPROTO[name] === number);
}

/** linux/netfilter/nfnetlink.h */
export const nfgenmsg = struct('nfgenmsg', { family: u8, version: u8, resId: u16be });

/** linux/netfilter/nfnetlink.h */
const NFNL_SUBSYS_NFTABLES = 10;
const NFNL_MSG_BATCH_BEGIN = 0x10;
const NFNL_MSG_BATCH_END = 0x11;

/** linux/netfilter/nf_tables.h, NFT_MSG_NEW*: the numbers of NFT_MSG_GET* and NFT_MSG_DEL* follow. */
const FIRST = { TABLE: 0, CHAIN: 3, RULE: 6, SET: 9, SETELEM: 12, GEN: 15 } as const;
const VERBS = ['NEW', 'GET', 'DEL'] as const;

/** A kind of nf_tables object in the kernel's spelling. */
type NftKind = keyof typeof FIRST;

/**
 * Id of a set within a batch, which the kernel requires. It is used only when no set has the name that a rule gives, and our
 * rules name existing sets. So one id is enough for all.
 */
export const SET_ID = 1;

/**
 * Refusals of questions that mean that there is no such object: also those of a kernel without nf_tables, which may be a module that
 * cannot be loaded. A caller that only looks there, as a DEL of an attachment that never needed nf_tables, has found nothing.
 */
export const NOT_THERE: readonly number[] = [
  Errno.ENOENT,
  Errno.EINVAL,
  Errno.EOPNOTSUPP,
  Errno.EPROTONOSUPPORT,
];

/** Identifies a table, through which all of its contents are addressed. */
export interface Table {
  readonly family: NftFamily;
  readonly name: string;
}

/** The type of a message: `nftType('DEL', 'RULE')` is NFT_MSG_DELRULE. */
export function nftType(verb: (typeof VERBS)[number], kind: NftKind): number {
  return (NFNL_SUBSYS_NFTABLES << 8) | (FIRST[kind] + VERBS.indexOf(verb));
}

/**
 * The messages about one kind of object in a table. Each request is described by its operation, human-readable, and consists of the
 * table's name and the given attributes.
 */
export interface NftMessages<A> extends Layout<{ family: number }, A> {
  /** A change for a batch that makes an object, or leaves the one that exists. */
  add(op: string, table: Table, own: A, flags?: number): Request;
  /** A change for a batch that deletes an object. */
  remove(op: string, table: Table, own: A): Request;
  /** Asks for one object, at a cost that does not depend on the others. */
  question(op: string, table: Table, own: A): Question<A>;
  /**
   * The attributes of the table's objects; other tables', which some kernels list as well, are left out.
   * @param asked attributes of the request, which has none by default
   * @param only skips objects that contain none of these byte strings
   */
  list(socket: NetlinkSocket, op: string, table: Table, asked?: A, only?: readonly Uint8Array[]): A[];
  /** The objects of every table of the known families. */
  listAll(socket: NetlinkSocket, op: string): NftObject<A>[];
}

export interface NftObject<A> {
  readonly table: Table;
  readonly attrs: A;
}

/**
 * Describes the messages of a kind, which traces show so unless another table is to.
 * @param name the attribute that holds the name of the table
 */
export function nftMessages<A extends object, N extends keyof A & string>(
  kind: NftKind,
  set: AttrSet<A>,
  name: N,
  isShown = true,
): NftMessages<A> {
  const format = layout(nfgenmsg, set);
  const names = Object.fromEntries(VERBS.map(verb => [nftType(verb, kind), `NFT_MSG_${verb}${kind}`]));
  if (isShown) traced('NETLINK_NETFILTER', names, format);
  const bodyOf = (table: Table, own: A) => format.encode({ family: NFPROTO[table.family] }, own);
  const dump = (socket: NetlinkSocket, request: Request, only?: readonly Uint8Array[]) =>
    tolerating(NOT_THERE, () => socket.dump(request, only)) ?? [];
  const inTable = (table: Table, own: A) => bodyOf(table, { [name]: table.name, ...own });
  return {
    ...format,
    add: (op, table, own, flags = NLM_F_CREATE) => {
      return { op, type: nftType('NEW', kind), flags, body: inTable(table, own) };
    },
    remove: (op, table, own) => ({ op, type: nftType('DEL', kind), body: inTable(table, own) }),
    question: (op, table, own) => ({
      ...{ op, type: nftType('GET', kind), body: inTable(table, own), isQuestion: true },
      absent: NOT_THERE,
      read: body => format.decode(body).attrs,
    }),
    list(socket, op, table, asked = {} as A, only) {
      const request = { op, type: nftType('GET', kind), body: bodyOf(table, asked) };
      return dump(socket, request, only).flatMap(body => {
        const { header, attrs } = format.decode(body);
        return header.family === NFPROTO[table.family] && attrs[name] === table.name ? [attrs] : [];
      });
    },
    listAll(socket, op) {
      // The kernel lists only the requested family, or all if none is given.
      const body = format.encode({ family: 0 }, {} as A);
      return dump(socket, { op, type: nftType('GET', kind), body }).flatMap(one => {
        const { header, attrs } = format.decode(one);
        const family = familyOf(header.family);
        const table = attrs[name];
        return family === undefined || typeof table !== 'string'
          ? []
          : { table: { family, name: table }, attrs };
      });
    },
  };
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
  const body = batchMessage.encode({ resId: NFNL_SUBSYS_NFTABLES }, { generation });
  return { op: 'begin a transaction', type: NFNL_MSG_BATCH_BEGIN, body };
}

export function batchEnd(): Request {
  const body = batchMessage.encode({ resId: NFNL_SUBSYS_NFTABLES }, {});
  return { op: 'commit a transaction', type: NFNL_MSG_BATCH_END, body };
}

/** `inet catena`, human-readable. */
export function renderTable(table: Table): string {
  return `"${table.family} ${table.name}"`;
}

/** Each attempt takes well below a millisecond; other software changes the rule set often, but not constantly. */
const ATTEMPTS = 100;

/** linux/netfilter/nf_tables.h, enum nft_gen_attributes */
const generationMessage = traced(
  'NETLINK_NETFILTER',
  { [nftType('NEW', 'GEN')]: 'NFT_MSG_NEWGEN', [nftType('GET', 'GEN')]: 'NFT_MSG_GETGEN' },
  layout(nfgenmsg, attrs('generation', { id: [1, u32be] })),
);

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
  const id = socket.ask({
    op: 'read the rule set generation',
    ...{ type: nftType('GET', 'GEN'), body: generationMessage.encode({ family: NFPROTO.inet }, {}) },
    ...{ isQuestion: true, absent: NOT_THERE },
    read: body => generationMessage.decode(body).attrs.id,
  });
  return id ?? 0;
}
