// What exists, in the kernel and on disk, that an attachment may have made?

import fs from 'node:fs';
import { dumpKernelState } from '../helpers/dump.ts';
import { filesBelow } from '../helpers/journal.ts';
import type { Container, Lab, Row } from '../helpers/netns.ts';
import { type Exec, standIn } from './standing.ts';

/** Everything that attachments may change: one line for each item. */
export type State = readonly string[];

/**
 * Returns a function that reads the state.
 * @param whole whether the fixed tables count as well; without other attachments they may or may not exist
 */
export function stateReader(
  lab: Lab,
  containers: readonly Container[],
  whole: boolean,
): () => Promise<State> {
  const places = [lab.host, ...containers].map(standIn);
  return () => readState(lab, places, containers, whole);
}

async function readState(
  lab: Lab,
  places: readonly Exec[],
  [own]: readonly Container[],
  whole: boolean,
): Promise<State> {
  const kernel = await Promise.all(
    places.map(async (exec, i) => {
      const dump = await dumpKernelState(exec);
      const nft = whole ? dump.nft : dump.nft.flatMap(withoutTables);
      const lines = Object.entries({ ...dump, nft }).flatMap(([kind, rows]) =>
        rows.map((row: Row) => `${kind} ${JSON.stringify(row)}`),
      );
      const place = i === 0 ? 'host' : `container ${i}`;
      return lines.map(line => `${place}: ${withoutNumbers(line)}`).filter(line => !COMES_LATE.test(line));
    }),
  );
  const somaxconn = own === undefined ? '' : await lab.sysctl(own, 'net/core/somaxconn');
  return [...kernel.flat(), `container 1: somaxconn ${somaxconn}`, ...files(lab)].sort();
}

/** The state once two readings are equal: addresses and routes of IPv6 take a moment. */
export async function settledState(read: () => Promise<State>): Promise<State> {
  let last = await read();
  for (let attempt = 0; attempt < 50; attempt++) {
    await Bun.sleep(200);
    const next = await read();
    if (findDifferences(last, next).length === 0) return next;
    last = next;
  }
  throw new Error('Cannot begin: the host does not come to rest');
}

/** Waits for a state, for as long as the kernel may take to settle. @returns the remaining differences */
export async function awaitState(read: () => Promise<State>, wanted: State): Promise<string[]> {
  const until = Date.now() + SETTLE_MS;
  for (;;) {
    const differences = findDifferences(wanted, await read());
    if (differences.length === 0 || Date.now() > until) return differences;
    await Bun.sleep(100);
  }
}

const SETTLE_MS = 3_000;

/** Lines that only one of the states has, marked with + and -. */
export function findDifferences(before: State, after: State): string[] {
  return [
    ...without(before, after).map(line => `- ${line}`),
    ...without(after, before).map(line => `+ ${line}`),
  ];
}

/** The same line may occur several times. */
function without(lines: State, others: State): string[] {
  const left = new Map<string, number>();
  for (const line of others) left.set(line, (left.get(line) ?? 0) + 1);
  return lines.filter(line => {
    const count = left.get(line) ?? 0;
    left.set(line, count - 1);
    return count <= 0;
  });
}

/** Of fixed tables, only the contents of their sets and maps count. */
function withoutTables(row: Row): Row[] {
  const [kind = '', object = {}] = Object.entries(row)[0] ?? [];
  const table = kind === 'table' ? object.name : object.table;
  if (object.family !== 'inet' || !String(table).startsWith('catena_')) return [row];
  const elements = (object.elem ?? []) as unknown[];
  return elements.map(element => ({ element, table, name: object.name }));
}

/** The kernel adds these when duplicate address detection of a link-local address is over. */
const COMES_LATE = /: routes .*"dst":"(LINK-LOCAL|fe80::)".*"table":"local"/;

/** Hardware addresses and names of pairs are random, and a device gets a new number each time. */
function withoutNumbers(line: string): string {
  return line
    .replace(/\b8000\.[0-9a-f:]+/g, 'BRIDGE')
    .replace(/\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b/g, 'MAC')
    .replace(/\bfe80::[0-9a-f:]+/g, 'LINK-LOCAL')
    .replace(/\bveth[0-9a-f]{8}\b/g, 'VETH')
    .replace(/,"tentative":true/g, '')
    .replace(/"(ifindex|link_index|link_netnsid|designated_port|id|no)":"?\w+"?/g, '"$1":0');
}

/**
 * Kept on purpose: where the range continues, locks, a daemon's files beside its socket, an index of the size of the leases, the
 * boot id, the history, what plugins noted of a GC whose runner could not; and the one temporary file with a fixed name in a lease
 * directory, which the next writer removes.
 */
const KEPT =
  /(^|\/)(last_reserved_ip\.\d+|lock|\.catena-(owners|taken|lease|pointer)(\.new)?|boot|caches\/\w+|gate|podnet\.conflist|history\/(events|lists))$|\.lock$|^run\/(gc\/podnet$|catena\.sock(\.seat|\.wire|\.calls\.\d+-\d+)?$|traces\/)/;

function files(lab: Lab): string[] {
  return filesBelow(lab.tmp)
    .filter(name => !KEPT.test(name))
    .map(name => `file ${name}${sizeOf(`${lab.tmp}/${name}`)}`);
}

/** Marks an empty file, which is a truncated one. */
function sizeOf(file: string): string {
  return fs.lstatSync(file, { throwIfNoEntry: false })?.size === 0 ? ' (empty)' : '';
}
