// What is the complete rule set of a namespace?
import { attrs, listOf } from '../codec/attrs.ts';
import { bytes, str, u32be } from '../codec/fields.ts';
import { layout } from '../codec/message.ts';
import { NFPROTO, nfgenmsg } from '../nfgenmsg.ts';
import type { NetlinkSocket } from '../socket.ts';
import { chainMessage } from './chain.ts';
import { data } from './data.ts';
import { type NftFamily, NftMsg, nftType } from './message.ts';
import { type Rule, ruleMessage } from './rule.ts';
import { tableMessage } from './table.ts';

/** linux/netfilter/nf_tables.h, NFT_TABLE_F_DORMANT: its chains see no packet. */
const DORMANT = 1;
/** NFT_SET_ELEM_INTERVAL_END, NFT_SET_ELEM_CATCHALL */
const INTERVAL_END = 1;
const CATCHALL = 2;

const setAttrs = attrs('set', {
  table: [1, str],
  name: [2, str],
  flags: [3, u32be],
  keyLength: [5, u32be],
  desc: [9, attrs('set description', { concat: [2, listOf(attrs('field', { length: [1, u32be] }))] })],
});
const elementAttrs = attrs('element', {
  key: [1, data],
  data: [2, data],
  flags: [3, u32be],
  userdata: [6, bytes],
  keyEnd: [10, data],
});
const setLayout = layout(nfgenmsg, setAttrs);
const elementLayout = layout(
  nfgenmsg,
  attrs('elements', { table: [1, str], set: [2, str], elements: [3, listOf(elementAttrs)] }),
);
const generationLayout = layout(nfgenmsg, attrs('generation', { id: [1, u32be] }));

type Data = ReturnType<typeof data.decode>;

/** An element of a set or map. */
export interface RawElement {
  readonly key: Uint8Array;
  /** Last key of the range, both ends included; only in sets of concatenated ranges. */
  readonly keyEnd?: Uint8Array | undefined;
  readonly data?: Data | undefined;
  /** Not a member: the first key behind the range that ends here. */
  readonly isEnd: boolean;
  /** The member that stands for every key without one. */
  readonly isCatchall: boolean;
}

/** A set or map as the kernel reports it. */
export interface RawSet {
  /** NFT_SET_* */
  readonly flags: number;
  /** Bytes. */
  readonly keyLength: number;
  /** Lengths in bytes of the parts of a concatenated key; empty if the kernel does not say. */
  readonly fields: readonly number[];
  readonly elements: readonly RawElement[];
}

/** A chain with its rules. */
export interface RawChain {
  readonly name: string;
  readonly handle: bigint;
  /** Absent for chains that are only jumped to. */
  readonly hook?: { readonly number: number; readonly priority: number; readonly type: string } | undefined;
  /** NF_DROP or NF_ACCEPT. */
  readonly policy: number;
  readonly rules: readonly Rule[];
}

/** A table with everything in it. */
export interface RawTable {
  readonly family: NftFamily;
  readonly name: string;
  readonly chains: ReadonlyMap<string, RawChain>;
  readonly sets: ReadonlyMap<string, RawSet>;
}

const ATTEMPTS = 5;

/**
 * Every table of the namespace, in the order of their creation; dormant ones are left out. Read again when it changes meanwhile.
 * Same as: `nft -a list ruleset`
 */
export function readRuleset(socket: NetlinkSocket): RawTable[] {
  for (let attempt = 1; ; attempt++) {
    const before = generationOf(socket);
    const tables = readOnce(socket);
    if (generationOf(socket) === before) return tables;
    if (attempt === ATTEMPTS)
      throw new Error('Cannot read the nf_tables rules: they keep changing; try again');
  }
}

function readOnce(socket: NetlinkSocket): RawTable[] {
  const rules = new Map<string, Rule[]>();
  for (const { header, attrs: rule } of dump(socket, 'rules', NftMsg.GETRULE, ruleMessage.decode)) {
    const place = key(header.family, rule.table, rule.chain);
    rules.set(place, [...(rules.get(place) ?? []), ruleOf(rule)]);
  }
  const chains = dump(socket, 'chains', NftMsg.GETCHAIN, chainMessage.decode);
  const sets = dump(socket, 'sets', NftMsg.GETSET, setLayout.decode);
  return dump(socket, 'tables', NftMsg.GETTABLE, tableMessage.decode).flatMap(({ header, attrs: table }) => {
    const family = FAMILIES.find(one => NFPROTO[one] === header.family);
    if (family === undefined || (table.flags ?? 0) & DORMANT) return [];
    const isHere = (one: { header: { family: number }; attrs: { table?: string } }): boolean =>
      one.header.family === header.family && one.attrs.table === table.name;
    return {
      family,
      name: table.name ?? '',
      chains: new Map(
        chains.filter(isHere).map(({ attrs: chain }) => {
          const own = rules.get(key(header.family, table.name, chain.name)) ?? [];
          return [chain.name ?? '', chainOf(chain, own)];
        }),
      ),
      sets: new Map(
        sets.filter(isHere).map(({ attrs: set }) => [
          set.name ?? '',
          {
            flags: set.flags ?? 0,
            keyLength: set.keyLength ?? 0,
            fields: (set.desc?.concat ?? []).map(({ length = 0 }) => length),
            elements: elementsOf(socket, header.family, table.name ?? '', set.name ?? ''),
          },
        ]),
      ),
    };
  });
}

function elementsOf(socket: NetlinkSocket, family: number, table: string, set: string): RawElement[] {
  const body = elementLayout.encode({ family }, { table, set });
  const op = `list the elements of set "${set}"`;
  return socket.dump({ op, type: nftType(NftMsg.GETSETELEM), body }).flatMap(one =>
    (elementLayout.decode(one).attrs.elements ?? []).map(element => ({
      key: element.key?.value ?? new Uint8Array(),
      keyEnd: element.keyEnd?.value,
      data: element.data,
      isEnd: ((element.flags ?? 0) & INTERVAL_END) !== 0,
      isCatchall: ((element.flags ?? 0) & CATCHALL) !== 0,
    })),
  );
}

function chainOf(chain: ReturnType<typeof chainMessage.decode>['attrs'], rules: readonly Rule[]): RawChain {
  const { name = '', handle = 0n, hook, policy = 1, type = '' } = chain;
  const base = hook && { number: hook.number ?? 0, priority: hook.priority ?? 0, type };
  return { name, handle, hook: base, policy, rules };
}

function ruleOf(rule: ReturnType<typeof ruleMessage.decode>['attrs']): Rule {
  const { chain = '', handle = 0n, expressions = [], comment } = rule;
  return { chain, handle, expressions, ...(comment === undefined ? {} : { comment }) };
}

function generationOf(socket: NetlinkSocket): number {
  const request = { op: 'read the generation of the rules', type: nftType(NftMsg.GETGEN), isQuestion: true };
  const body = generationLayout.encode({}, {});
  const [answer = new Uint8Array()] = socket.request({ ...request, body });
  return generationLayout.decode(answer).attrs.id ?? 0;
}

function dump<T>(socket: NetlinkSocket, what: string, message: number, decode: (body: Uint8Array) => T): T[] {
  const body = generationLayout.encode({ family: 0 }, {});
  return socket.dump({ op: `list ${what}`, type: nftType(message), body }).map(one => decode(one));
}

function key(family: number, table = '', chain = ''): string {
  return `${family} ${table} ${chain}`;
}

const FAMILIES = Object.keys(NFPROTO) as NftFamily[];
