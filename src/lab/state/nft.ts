// Which tables, chains, rules and elements of any owner does nf_tables have in a namespace?

import { isNetlinkError } from '../../netlink/errors.ts';
import { NFPROTO } from '../../netlink/nfgenmsg.ts';
import { chainMessage } from '../../netlink/nft/chain.ts';
import {
  decodeFields,
  renderFields,
  type TypeName,
  type TypeNames,
  typeId,
  typeLength,
} from '../../netlink/nft/datatype.ts';
import { elementMessage } from '../../netlink/nft/element.ts';
import { type NftFamily, NftMsg, nftType, type Table } from '../../netlink/nft/message.ts';
import { ruleMessage } from '../../netlink/nft/rule.ts';
import { setMessage } from '../../netlink/nft/set.ts';
import { tableMessage } from '../../netlink/nft/table.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import { Errno } from '../../sys/errno.ts';
import type { StateObject } from './object.ts';

/** linux/netfilter/nf_tables.h, enum nft_set_flags: sets that are constants of one rule. */
const NFT_SET_ANONYMOUS = 0x1;

/** The whole rule set. Same as: `nft list ruleset`, one line per object */
export function readNft(socket: NetlinkSocket): StateObject[] {
  return [...readTables(socket), ...readChains(socket), ...readSets(socket), ...readRules(socket)];
}

/** Key of a table in a state. */
function tableKey(family: string, name: string): string {
  return `table ${family} ${name}`;
}

function readTables(socket: NetlinkSocket): StateObject[] {
  return dumpAll(socket, 'tables', NftMsg.GETTABLE).map(body => {
    const { header, attrs } = tableMessage.decode(body);
    const words = tableKey(familyOf(header.family), attrs.name ?? '');
    return { key: words, words, shape: words };
  });
}

function readChains(socket: NetlinkSocket): StateObject[] {
  return dumpAll(socket, 'chains', NftMsg.GETCHAIN).map(body => {
    const { header, attrs } = chainMessage.decode(body);
    const table = tableKey(familyOf(header.family), attrs.table ?? '');
    const { name = '' } = attrs;
    return {
      key: `chain ${table} ${name}`,
      words: `chain ${name} in ${table}`,
      parent: table,
      counted: ['chain', 'chains'],
      shape: `chain ${collapse(name)} in ${table}`,
    };
  });
}

function readRules(socket: NetlinkSocket): StateObject[] {
  return dumpAll(socket, 'rules', NftMsg.GETRULE).map(body => {
    const { header, attrs } = ruleMessage.decode(body);
    const table = tableKey(familyOf(header.family), attrs.table ?? '');
    const { chain = '', handle, comment, expressions = [] } = attrs;
    const target = findChain(expressions);
    const leads = target === undefined ? '' : ` jumps to ${collapse(target)}`;
    return {
      key: `rule ${table} ${chain} ${handle}`,
      words: `rule in chain ${chain} of ${table}${comment === undefined ? '' : ` "${comment}"`}`,
      parent: table,
      counted: ['rule', 'rules'],
      shape: `rule in chain ${collapse(chain)} of ${table}${leads}`,
    };
  });
}

function readSets(socket: NetlinkSocket): StateObject[] {
  return dumpAll(socket, 'sets', NftMsg.GETSET).flatMap(body => {
    const { header, attrs } = setMessage.decode(body);
    const family = familyOf(header.family);
    const { name = '', table = '', flags = 0, keyType = 0, dataType, dataLength } = attrs;
    if (flags & NFT_SET_ANONYMOUS) return [];
    const kind = dataType === undefined ? 'set' : 'map';
    const parent = tableKey(family, table);
    const set: StateObject = {
      key: `set ${parent} ${name}`,
      words: `${kind} ${name} in ${parent}`,
      parent,
      counted: ['set', 'sets'],
      shape: `set ${name} in ${parent}`,
    };
    const key = typesOf(keyType, attrs.keyLength ?? 0);
    const data = dataType === undefined ? undefined : typesOf(dataType, dataLength ?? 0);
    return [set, ...readElements(socket, { family, name: table }, name, key, data)];
  });
}

function readElements(
  socket: NetlinkSocket,
  table: Table,
  set: string,
  keyTypes: TypeNames | undefined,
  dataTypes: TypeNames | undefined,
): StateObject[] {
  const op = `list elements of "${set}"`;
  const body = elementMessage.encode({ family: NFPROTO[table.family] }, { table: table.name, set });
  const bodies = tolerate(() => socket.dump({ op, type: nftType(NftMsg.GETSETELEM), body }));
  return bodies.flatMap(one =>
    (elementMessage.decode(one).attrs.elements ?? []).map(element => {
      const key = renderValue(keyTypes, element.key?.value);
      const data = element.data?.verdict?.chain ?? renderValue(dataTypes, element.data?.value);
      const own = data === '' ? key : `${key} → ${data}`;
      const comment = element.comment === undefined ? '' : ` "${element.comment}"`;
      return {
        key: `element ${table.family} ${table.name} ${set} ${key}`,
        words: `${own} in ${set}`,
        parent: tableKey(table.family, table.name),
        counted: ['element', 'elements'] as const,
        shape: `element in ${table.family} ${table.name} ${set}`,
        state: { element: `${own}${comment}` },
      };
    }),
  );
}

function dumpAll(socket: NetlinkSocket, what: string, message: number): Uint8Array[] {
  // Family 0 means every family, and without attributes all kinds of requests look the same.
  const body = tableMessage.encode({ family: 0 }, {});
  return tolerate(() => socket.dump({ op: `list ${what}`, type: nftType(message), body }));
}

/** A kernel without nf_tables has none of its objects. */
function tolerate(dump: () => Uint8Array[]): Uint8Array[] {
  try {
    return dump();
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.ENOENT, Errno.EINVAL, Errno.EOPNOTSUPP)) return [];
    throw thrown;
  }
}

function familyOf(number: number): NftFamily {
  const names = Object.keys(NFPROTO) as NftFamily[];
  return names.find(name => NFPROTO[name] === number) ?? 'inet';
}

/** Types with known names, looked up by nft's number. */
const KNOWN: readonly TypeName[] = [
  'nf_proto',
  'ipv4_addr',
  'ipv6_addr',
  'inet_proto',
  'inet_service',
  'mark',
  'ifname',
];

/** nftables, TYPE_BITS: a concatenation's number consists of those of its parts, six bits each. */
function typesOf(id: number, length: number): TypeNames | undefined {
  const names: TypeName[] = [];
  for (let rest = id; rest > 0; rest >>>= 6) {
    const name = KNOWN.find(known => typeId([known]) === (rest & 0x3f));
    if (name === undefined) return undefined;
    names.unshift(name);
  }
  const [first, ...more] = names;
  if (first === undefined) return undefined;
  const types: TypeNames = [first, ...more];
  return typeLength(types) === length ? types : undefined;
}

function renderValue(types: TypeNames | undefined, value: Uint8Array | undefined): string {
  if (value === undefined) return '';
  return types ? renderFields(decodeFields(types, value)) : value.toHex();
}

/** The chain named by a verdict anywhere in a rule. */
function findChain(value: unknown): string | undefined {
  if (value === null || typeof value !== 'object' || value instanceof Uint8Array) return undefined;
  if ('chain' in value && typeof value.chain === 'string') return value.chain;
  for (const member of Object.values(value)) {
    const found = findChain(member);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Chains that exist once per container have its digest in their name. */
function collapse(name: string): string {
  return name.replace(/[0-9a-f]*\d[0-9a-f]*/gi, '#');
}
