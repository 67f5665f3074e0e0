// How are elements of sets and maps added, found and deleted, of one set or of several together?

import { attrs, bytes, listOf, type Request, str, u32be } from '../codec.ts';
import type { NetlinkSocket, Question } from '../socket.ts';
import { data, toVerdict, type Verdict } from './expr.ts';
import { nftMessages, renderTable, type Table } from './message.ts';
import {
  comment,
  decodeFields,
  encodeFields,
  type FieldValue,
  type NftSet,
  renderFields,
  renderSet,
  type setMessage,
  typeNamesOf,
} from './table.ts';

/** linux/netfilter/nf_tables.h, enum nft_set_elem_attributes */
const elementAttrs = attrs('element', {
  key: [1, data],
  data: [2, data],
  flags: [3, u32be],
  comment: [6, comment], // NFTA_SET_ELEM_USERDATA
  expression: [7, bytes],
  end: [10, data], // NFTA_SET_ELEM_KEY_END
});

/** linux/netfilter/nf_tables.h, enum nft_set_elem_list_attributes */
const elementListAttrs = attrs('elements', {
  table: [1, str],
  set: [2, str],
  elements: [3, listOf(elementAttrs)],
});

export const elementMessage = nftMessages('SETELEM', elementListAttrs, 'table');

/** A message holds at most 64 KiB; this many elements of any of our sets fit easily. */
const ELEMENTS_PER_MESSAGE = 100;

/** A member of a set, or an entry of a map. */
export interface Element {
  readonly key: readonly FieldValue[];
  /** The value that a map has for the key; absent in sets. */
  readonly data?: readonly FieldValue[] | Verdict;
  /** Names the owner; shown by `nft list`. Up to 127 characters. */
  readonly comment?: string;
}

/**
 * Adds elements. An existing one is left as it is, including its comment. With different data the result is EEXIST or EBUSY,
 * depending on the kernel version.
 * Same as: `nft add element <family> <table> <set> { <key> [comment "…"] [: <data>], … }`
 */
export function addElements(set: NftSet, elements: readonly Element[]): Request[] {
  return inPortions(elements).map(portion =>
    elementMessage.add(`add ${renderKeys(portion)} to ${renderSet(set)}`, set.table, listAttrs(set, portion)),
  );
}

/**
 * Deletes elements by their keys; ENOENT for a missing one.
 * Same as: `nft delete element <family> <table> <set> { <key>, … }`
 */
export function deleteElements(set: NftSet, keys: readonly (readonly FieldValue[])[]): Request[] {
  return inPortions(keys.map(key => ({ key }))).map(portion => {
    const op = `delete ${renderKeys(portion)} from ${renderSet(set)}`;
    return elementMessage.remove(op, set.table, listAttrs(set, portion));
  });
}

function listAttrs(set: NftSet, elements: readonly Element[]) {
  return { set: set.name, elements: elements.map(element => encodeElement(set, element)) };
}

/**
 * The element with this key, or undefined when it or its set does not exist. Constant cost.
 * Same as: `nft get element <family> <table> <set> { <key> }`
 */
export function findElement(
  socket: NetlinkSocket,
  set: NftSet,
  key: readonly FieldValue[],
): Element | undefined {
  return socket.ask(question({ set, key }));
}

export interface ElementPlace {
  readonly set: NftSet;
  readonly key: readonly FieldValue[];
}

/** Each answer to a question costs a system call, while a listing returns thousands of elements in a few. */
const MOST_QUESTIONS = 500;

/**
 * Like {@link findElement} for many keys, in their order, with one batch of questions. Sets with very many of the keys are
 * listed instead.
 */
export function findElements(
  socket: NetlinkSocket,
  places: readonly ElementPlace[],
): (Element | undefined)[] {
  if (places.length <= MOST_QUESTIONS) return socket.askAll(places.map(question));
  const found = new Map<ElementPlace, Element | undefined>();
  const asked = bySet(places).flatMap(({ set, members }) => {
    if (members.length <= MOST_QUESTIONS) return members;
    const listed = new Map(listElements(socket, set).map(one => [renderFields(one.key), one]));
    for (const place of members) found.set(place, listed.get(renderFields(place.key)));
    return [];
  });
  const answers = socket.askAll(asked.map(question));
  for (const [i, place] of asked.entries()) found.set(place, answers[i]);
  return places.map(place => found.get(place));
}

/** All elements; none when the set does not exist. Same as: `nft list set|map <family> <table> <name>` */
export function listElements(socket: NetlinkSocket, set: NftSet): Element[] {
  return listAttrsOf(socket, `list ${renderSet(set)}`, set.table, set.name).map(own => toElement(set, own));
}

function listAttrsOf(socket: NetlinkSocket, op: string, table: Table, set: string): ElementAttrs[] {
  const asked = { table: table.name, set };
  return elementMessage.list(socket, op, table, asked).flatMap(({ elements = [] }) => elements);
}

function question({ set, key }: ElementPlace): Question<Element> {
  const asked = elementMessage.question('', set.table, listAttrs(set, [{ key }]));
  return {
    ...asked,
    // Dozens of questions are sent at once, and only the few that fail need their text.
    get op() {
      return `find ${renderFields(key)} in ${renderSet(set)}`;
    },
    read(body) {
      const [own] = asked.read(body)?.elements ?? [];
      return own && toElement(set, own);
    },
  };
}

type ElementAttrs = ReturnType<typeof elementAttrs.decode>;

function encodeElement(set: NftSet, { key, data, comment }: Element): ElementAttrs {
  return { key: { value: encodeFields(set.key, key) }, data: data && encodeData(set, key, data), comment };
}

function encodeData(set: NftSet, key: readonly FieldValue[], data: readonly FieldValue[] | Verdict) {
  if ('code' in data) return { verdict: data };
  if (set.data !== undefined && set.data !== 'verdict') return { value: encodeFields(set.data, data) };
  throw new Error(`Cannot add ${renderFields(key)} to ${renderSet(set)}: its data is of the wrong kind`);
}

function toElement(set: NftSet, { key, data, comment }: ElementAttrs): Element {
  const { verdict, value } = data ?? {};
  return {
    key: decodeFields(set.key, key?.value ?? new Uint8Array()),
    ...(verdict ? { data: toVerdict(verdict) } : {}),
    ...(value && set.data && set.data !== 'verdict' ? { data: decodeFields(set.data, value) } : {}),
    ...(comment === undefined ? {} : { comment }),
  };
}

function inPortions(elements: readonly Element[]): (readonly Element[])[] {
  const count = Math.ceil(elements.length / ELEMENTS_PER_MESSAGE);
  const starts = Array.from({ length: count }, (_, i) => i * ELEMENTS_PER_MESSAGE);
  return starts.map(at => elements.slice(at, at + ELEMENTS_PER_MESSAGE));
}

function renderKeys(elements: readonly Element[]): string {
  const [first] = elements;
  const more = elements.length > 1 ? ` and ${elements.length - 1} more` : '';
  return `{ ${renderFields(first?.key ?? [])} }${more}`;
}

export interface NotedElement extends Element {
  readonly table: Table;
  readonly set: string;
  readonly comment: string;
}

/**
 * Every element with a comment, if the type of the set's keys is known.
 * @param set as the kernel describes it
 * Same as: `nft list set <family> <table> <name>`
 */
export function notedElementsOf(
  socket: NetlinkSocket,
  table: Table,
  { name, keyType }: Pick<ReturnType<typeof setMessage.decode>['attrs'], 'name' | 'keyType'>,
): NotedElement[] {
  const key = keyType === undefined ? undefined : typeNamesOf(keyType);
  if (name === undefined || key === undefined) return [];
  return listElements(socket, { table, name, key }).flatMap(({ comment, ...element }) =>
    comment === undefined ? [] : { ...element, comment, table, set: name },
  );
}

/** linux/netfilter/nf_tables.h, enum nft_set_elem_flags */
const NFT_SET_ELEM_INTERVAL_END = 1;
const NFT_SET_ELEM_CATCHALL = 2;

export interface RawElement {
  /** Empty for the element that stands for all other keys. */
  readonly key: Uint8Array;
  /** What a map with verdicts has for the key. */
  readonly verdict?: Verdict;
  /** What another map has for it. */
  readonly value?: Uint8Array;
  /** The key is the first that an interval no longer contains. */
  readonly endsInterval: boolean;
  /** The element is about more than this key: ranges of a concatenation, or conditions of its own. */
  readonly isComplex: boolean;
  /** Names the owner, or says what the element is for. */
  readonly comment?: string;
}

/** All elements; none when the set does not exist. Same as: `nft list set|map <family> <table> <name>` */
export function listRawElements(socket: NetlinkSocket, table: Table, set: string): RawElement[] {
  const op = `list set "${set}" of table ${renderTable(table)}`;
  return listAttrsOf(socket, op, table, set).map(own => {
    const { key, flags = 0, expression, end, comment } = own;
    const { verdict, value } = own.data ?? {};
    return {
      key: key?.value ?? new Uint8Array(),
      endsInterval: (flags & NFT_SET_ELEM_INTERVAL_END) !== 0,
      isComplex: end !== undefined || expression !== undefined || (flags & NFT_SET_ELEM_CATCHALL) !== 0,
      ...(verdict ? { verdict: toVerdict(verdict) } : {}),
      ...(value ? { value } : {}),
      ...(comment === undefined ? {} : { comment }),
    };
  });
}

export interface Entry {
  readonly set: NftSet;
  readonly element: Element;
}

/** Adds elements, grouped by set. Same as: `nft add element <family> <table> <name> { … }` for each set */
export function addEntries(entries: readonly Entry[]): Request[] {
  return bySet(entries).flatMap(({ set, members }) => {
    const elements = members.map(({ element }) => element);
    return addElements(set, elements);
  });
}

/** Deletes elements, grouped by set. Same as: `nft delete element <family> <table> <name> { … }` for each set */
export function deletePlaces(places: readonly ElementPlace[]): Request[] {
  return bySet(places).flatMap(({ set, members }) => {
    const keys = members.map(({ key }) => key);
    return deleteElements(set, keys);
  });
}

/** A set is identified by its name: several objects may describe the same set. */
function bySet<T extends { readonly set: NftSet }>(all: readonly T[]): { set: NftSet; members: T[] }[] {
  const groups = new Map<string, { set: NftSet; members: T[] }>();
  for (const one of all) {
    const name = `${renderTable(one.set.table)} ${one.set.name}`;
    const group = groups.get(name) ?? { set: one.set, members: [] };
    groups.set(name, group);
    group.members.push(one);
  }
  return [...groups.values()];
}

/** How much is added to a count and removed from it. */
export interface Tally {
  readonly come: number;
  readonly went: number;
}

/**
 * The changes of a count in the data of a map; a count of zero is deleted. Call within `commitAfterReading`, since other processes
 * count as well.
 * @param count counts what is there: asked if another program has deleted the count
 * @param shared exists while the count is above zero
 */
export function recount(
  socket: NetlinkSocket,
  place: ElementPlace,
  { come, went }: Tally,
  count: () => number,
  shared?: Entry,
): Request[] {
  const sharedPlaces = shared ? [{ set: shared.set, key: shared.element.key }] : [];
  const [counted, found] = findElements(socket, [place, ...sharedPlaces]);
  const isLost = counted === undefined && (went > 0 || found !== undefined);
  // At least what is added now exists.
  const after = Math.max((isLost ? count() : countIn(counted)) + come - went, come);
  return countChanges(place, { counted, found, shared }, after);
}

/**
 * The changes that make all counts right again, after another program has deleted counts or what is counted. Call within
 * `commitAfterReading`.
 * @param countOf how many there are
 * @param sharedIn the set whose elements exist while counts are above zero
 * @param sharedOf as in {@link recount}
 */
export function correctCounts(
  socket: NetlinkSocket,
  set: NftSet,
  countOf: (place: ElementPlace) => number,
  sharedIn?: NftSet,
  sharedOf: (place: ElementPlace) => Entry | undefined = () => undefined,
): Request[] {
  const byKey = (elements: readonly Element[]) => new Map(elements.map(one => [renderFields(one.key), one]));
  const counted = byKey(listElements(socket, set));
  const found = byKey(sharedIn ? listElements(socket, sharedIn) : []);
  return [...new Map([...counted, ...found])].flatMap(([name, { key }]) => {
    const place = { set, key };
    const present = { counted: counted.get(name), found: found.get(name), shared: sharedOf(place) };
    return countChanges(place, present, countOf(place));
  });
}

function countIn(counted: Element | undefined): number {
  const [noted = 0] = (counted?.data ?? []) as readonly number[];
  return noted;
}

/** A count as it is, and what exists while it is above zero: whether it does, and what it is. */
interface Counted {
  readonly counted: Element | undefined;
  readonly found: Element | undefined;
  readonly shared: Entry | undefined;
}

function countChanges(place: ElementPlace, { counted, found, shared }: Counted, after: number): Request[] {
  const { set, key } = place;
  const isNew = after !== countIn(counted);
  return [
    ...deletePlaces(isNew && counted ? [place] : []),
    ...addEntries(isNew && after > 0 ? [{ set, element: { key, data: [after] } }] : []),
    ...addEntries(shared && after > 0 && !found ? [shared] : []),
    ...deletePlaces(shared && after === 0 && found ? [{ set: shared.set, key: shared.element.key }] : []),
  ];
}
