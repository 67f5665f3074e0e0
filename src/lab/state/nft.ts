// Which tables, chains, rules and elements of any owner does nf_tables have in a namespace?

import {
  decodeFields,
  renderFields,
  type TypeNames,
  typeLength,
  typeNamesOf,
} from '../../netlink/nft/datatype.ts';
import { keyOf, type Tables } from '../../netlink/tables.ts';
import type { StateObject } from './object.ts';

/** linux/netfilter/nf_tables.h, enum nft_set_flags: sets that are constants of one rule. */
const NFT_SET_ANONYMOUS = 0x1;

/** The whole rule set. Same as: `nft list ruleset`, one line per object */
export function describeNft(tables: Tables): StateObject[] {
  return [
    ...describeTables(tables),
    ...describeChains(tables),
    ...describeSets(tables),
    ...describeRules(tables),
  ];
}

/** Tables, and sets and maps with their elements: what compares without an order. */
export function describeUnordered(tables: Tables): StateObject[] {
  return [...describeTables(tables), ...describeSets(tables)];
}

function describeTables({ nftTables }: Tables): StateObject[] {
  return nftTables.map(table => {
    const words = `table ${keyOf(table)}`;
    return { key: words, words, shape: words };
  });
}

function describeChains({ nftChains }: Tables): StateObject[] {
  return nftChains.map(({ table, attrs: { name = '' } }) => {
    const parent = `table ${keyOf(table)}`;
    return {
      key: `chain ${parent} ${name}`,
      words: `chain ${name} in ${parent}`,
      parent,
      counted: ['chain', 'chains'],
      shape: `chain ${collapse(name)} in ${parent}`,
    };
  });
}

function describeRules({ nftRules }: Tables): StateObject[] {
  return nftRules.map(({ table, attrs: { chain = '', handle, comment, expressions = [] } }) => {
    const parent = `table ${keyOf(table)}`;
    const target = findChain(expressions);
    const leads = target === undefined ? '' : ` jumps to ${collapse(target)}`;
    return {
      key: `rule ${parent} ${chain} ${handle}`,
      words: `rule in chain ${chain} of ${parent}${comment === undefined ? '' : ` "${comment}"`}`,
      parent,
      counted: ['rule', 'rules'],
      shape: `rule in chain ${collapse(chain)} of ${parent}${leads}`,
    };
  });
}

function describeSets(tables: Tables): StateObject[] {
  return tables.nftSets.flatMap(({ table, attrs }) => {
    const { name = '', flags = 0, keyType = 0, keyLength = 0, dataType, dataLength = 0 } = attrs;
    if (flags & NFT_SET_ANONYMOUS) return [];
    const parent = `table ${keyOf(table)}`;
    const set: StateObject = {
      key: `set ${parent} ${name}`,
      words: `${dataType === undefined ? 'set' : 'map'} ${name} in ${parent}`,
      parent,
      counted: ['set', 'sets'],
      shape: `set ${name} in ${parent}`,
    };
    const keyTypes = typesOf(keyType, keyLength);
    const dataTypes = dataType === undefined ? undefined : typesOf(dataType, dataLength);
    const elements = (tables.contentsOf(table, name) ?? []).map((element): StateObject => {
      const key = renderValue(keyTypes, element.key);
      const data = element.verdict?.chain ?? renderValue(dataTypes, element.value);
      const own = data === '' ? key : `${key} → ${data}`;
      const comment = element.comment === undefined ? '' : ` "${element.comment}"`;
      return {
        key: `element ${keyOf(table)} ${name} ${key}`,
        words: `${own} in ${name}`,
        parent,
        counted: ['element', 'elements'],
        shape: `element in ${keyOf(table)} ${name}`,
        state: { element: `${own}${comment}` },
      };
    });
    return [set, ...elements];
  });
}

/** Undefined for types of other programs, whose values are shown as bytes. */
function typesOf(id: number, length: number): TypeNames | undefined {
  const types = typeNamesOf(id);
  return types && typeLength(types) === length ? types : undefined;
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
