// How are elements of sets and maps added, found and deleted, of one set or of several together?

import { Errno } from '../../sys/errno.ts';
import { attrs, bytes, listOf, NLM_F_CREATE, NLM_F_EXCL, type Request, str, u32be } from '../codec.ts';
import { type NetlinkSocket, tolerating } from '../socket.ts';
import { data, type Verdict } from './expr.ts';
import { NftMsg, nftLayout, nftRequest, renderTable, type Table } from './message.ts';
import {
  comment,
  decodeFields,
  encodeFields,
  type FieldValue,
  kindOf,
  type NftSet,
  renderFields,
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

/** NFT_MSG_NEWSETELEM, NFT_MSG_GETSETELEM and NFT_MSG_DELSETELEM. */
export const elementMessage = nftLayout('SETELEM', elementListAttrs);

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
 * depending on the kernel version; with `exclusive` it is always EEXIST.
 * Same as: `nft add element <family> <table> <set> { <key> [comment "…"] [: <data>], … }`
 */
export function addElements(
  set: NftSet,
  elements: readonly Element[],
  options: { exclusive?: boolean } = {},
): Request[] {
  const flags = NLM_F_CREATE | (options.exclusive ? NLM_F_EXCL : 0);
  return inPortions(elements).map(portion =>
    nftRequest(
      `add ${renderKeys(portion)} to ${renderSet(set)}`,
      NftMsg.NEWSETELEM,
      elementMessage,
      set.table.family,
      { table: set.table.name, set: set.name, elements: portion.map(element => encodeElement(set, element)) },
      flags,
    ),
  );
}

/**
 * Deletes elements by their keys; ENOENT for a missing one.
 * Same as: `nft delete element <family> <table> <set> { <key>, … }`
 */
export function deleteElements(set: NftSet, keys: readonly (readonly FieldValue[])[]): Request[] {
  return inPortions(keys.map(key => ({ key }))).map(portion =>
    nftRequest(
      `delete ${renderKeys(portion)} from ${renderSet(set)}`,
      NftMsg.DELSETELEM,
      elementMessage,
      set.table.family,
      { table: set.table.name, set: set.name, elements: portion.map(element => encodeElement(set, element)) },
    ),
  );
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
  return findElements(socket, [{ set, key }])[0];
}

/** A key of a set. */
interface Where {
  readonly set: NftSet;
  readonly key: readonly FieldValue[];
}

/** Each answer to a question costs a system call, while a listing returns thousands of elements in a few. */
const MOST_QUESTIONS = 500;

/**
 * Like {@link findElement} for many keys, in their order, with one batch of questions. Sets with very many of the keys are
 * listed instead.
 */
export function findElements(socket: NetlinkSocket, places: readonly Where[]): (Element | undefined)[] {
  if (places.length <= MOST_QUESTIONS) return askForElements(socket, places);
  const counts = new Map<string, number>();
  for (const { set } of places) counts.set(renderSet(set), (counts.get(renderSet(set)) ?? 0) + 1);
  const isListed = ({ set }: Where) => (counts.get(renderSet(set)) ?? 0) > MOST_QUESTIONS;
  const listings = new Map<string, ReadonlyMap<string, Element>>();
  const listing = (set: NftSet) => {
    const name = renderSet(set);
    const known =
      listings.get(name) ?? new Map(listElements(socket, set).map(one => [renderFields(one.key), one]));
    listings.set(name, known);
    return known;
  };
  const asked = askForElements(
    socket,
    places.filter(place => !isListed(place)),
  ).values();
  return places.map(place =>
    isListed(place) ? listing(place.set).get(renderFields(place.key)) : asked.next().value,
  );
}

function askForElements(socket: NetlinkSocket, places: readonly Where[]): (Element | undefined)[] {
  const questions = places.map(({ set, key }) => question(set, key));
  const bodies = socket.findAll(questions, [Errno.ENOENT]);
  return places.map(({ set }, i) => {
    const body = bodies[i];
    return body && decodeElements(set, body)[0];
  });
}

/** All elements; none when the set does not exist. Same as: `nft list set|map <family> <table> <name>` */
export function listElements(socket: NetlinkSocket, set: NftSet): Element[] {
  const op = `list ${renderSet(set)}`;
  const values = { table: set.table.name, set: set.name };
  const request = nftRequest(op, NftMsg.GETSETELEM, elementMessage, set.table.family, values);
  const bodies = tolerating([Errno.ENOENT], () => socket.dump(request)) ?? [];
  return bodies.flatMap(body => decodeElements(set, body));
}

function question(set: NftSet, key: readonly FieldValue[]): Request {
  const values = { table: set.table.name, set: set.name, elements: [encodeElement(set, { key })] };
  const { type, body } = nftRequest('', NftMsg.GETSETELEM, elementMessage, set.table.family, values);
  // Dozens of questions are sent at once, and only the few that fail need their text.
  return {
    get op() {
      return `find ${renderFields(key)} in ${renderSet(set)}`;
    },
    type,
    body,
    isQuestion: true,
  };
}

function encodeElement(set: NftSet, element: Element) {
  const own = { key: { value: encodeFields(set.key, element.key) } };
  const words = element.comment === undefined ? {} : { comment: element.comment };
  if (element.data === undefined) return { ...own, ...words };
  if (isVerdict(element.data)) return { ...own, data: { verdict: element.data }, ...words };
  if (set.data === undefined || set.data === 'verdict') {
    throw new Error(
      `Cannot add ${renderFields(element.key)} to ${renderSet(set)}: its data is of the wrong kind`,
    );
  }
  return { ...own, data: { value: encodeFields(set.data, element.data) }, ...words };
}

function decodeElements(set: NftSet, body: Uint8Array): Element[] {
  return (elementMessage.decode(body).attrs.elements ?? []).map(own => {
    const verdict = own.data?.verdict;
    const value = own.data?.value;
    return {
      key: decodeFields(set.key, own.key?.value ?? new Uint8Array()),
      ...(verdict ? { data: { ...verdict, code: verdict.code ?? 0 } } : {}),
      ...(value && set.data && set.data !== 'verdict' ? { data: decodeFields(set.data, value) } : {}),
      ...(own.comment === undefined ? {} : { comment: own.comment }),
    };
  });
}

function isVerdict(value: readonly FieldValue[] | Verdict): value is Verdict {
  return !Array.isArray(value);
}

function inPortions(elements: readonly Element[]): (readonly Element[])[] {
  const portions: (readonly Element[])[] = [];
  for (let at = 0; at < elements.length; at += ELEMENTS_PER_MESSAGE) {
    portions.push(elements.slice(at, at + ELEMENTS_PER_MESSAGE));
  }
  return portions;
}

function renderKeys(elements: readonly Element[]): string {
  const [first] = elements;
  const more = elements.length > 1 ? ` and ${elements.length - 1} more` : '';
  return `{ ${renderFields(first?.key ?? [])} }${more}`;
}

function renderSet(set: NftSet): string {
  return `${kindOf(set)} "${set.name}" of table ${renderTable(set.table)}`;
}

/** An element with a comment, and the set that it belongs to. */
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
  { name, keyType }: { readonly name?: string; readonly keyType?: number },
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

/** One element, as bytes. */
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
  const request = nftRequest(op, NftMsg.GETSETELEM, elementMessage, table.family, { table: table.name, set });
  const bodies = tolerating([Errno.ENOENT], () => socket.dump(request)) ?? [];
  return bodies.flatMap(body =>
    (elementMessage.decode(body).attrs.elements ?? []).map(
      ({ key, data: own, flags = 0, expression, end, comment }) => {
        const { verdict, value } = own ?? {};
        return {
          key: key?.value ?? new Uint8Array(),
          endsInterval: (flags & NFT_SET_ELEM_INTERVAL_END) !== 0,
          isComplex: end !== undefined || expression !== undefined || (flags & NFT_SET_ELEM_CATCHALL) !== 0,
          ...(verdict ? { verdict: { ...verdict, code: verdict.code ?? 0 } } : {}),
          ...(value ? { value } : {}),
          ...(comment === undefined ? {} : { comment }),
        };
      },
    ),
  );
}

/** An element and the set that it belongs to. */
export interface Entry {
  readonly set: NftSet;
  readonly element: Element;
}

/** The set and key of an element whose value is to be looked up. */
export interface ElementPlace {
  readonly set: NftSet;
  readonly key: readonly FieldValue[];
}

/** Adds elements, grouped by set. Same as: `nft add element <family> <table> <name> { … }` for each set */
export function addEntries(entries: readonly Entry[]): Request[] {
  return bySet(entries).flatMap(({ set, members }) =>
    addElements(
      set,
      members.map(({ element }) => element),
    ),
  );
}

/** Deletes elements, grouped by set. Same as: `nft delete element <family> <table> <name> { … }` for each set */
export function deletePlaces(places: readonly ElementPlace[]): Request[] {
  return bySet(places).flatMap(({ set, members }) =>
    deleteElements(
      set,
      members.map(({ key }) => key),
    ),
  );
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
 * @param shared exists while the count is above zero
 */
export function recount(
  socket: NetlinkSocket,
  place: ElementPlace,
  { come, went }: Tally,
  shared?: Entry,
): Request[] {
  const { set, key } = place;
  const sharedPlaces = shared ? [{ set: shared.set, key: shared.element.key }] : [];
  const [counted, found] = findElements(socket, [place, ...sharedPlaces]);
  const [before = 0] = (counted?.data ?? []) as readonly number[];
  // The count may have been wiped; at least what is added now exists.
  const after = Math.max(before + come - went, come);
  const isNew = after !== before;
  return [
    ...deletePlaces(isNew && counted ? [place] : []),
    ...addEntries(isNew && after > 0 ? [{ set, element: { key, data: [after] } }] : []),
    ...addEntries(shared && after > 0 && !found ? [shared] : []),
    ...deletePlaces(after === 0 && found ? sharedPlaces : []),
  ];
}
