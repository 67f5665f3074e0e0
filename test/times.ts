// How long did each test file take the last time, and did it compute or wait?
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './helpers/source-tree.ts';

/** One run of a file: from its start to its end, and the processor time of its process and of all that it waited for. */
export interface Time {
  readonly seconds: number;
  readonly cpu: number;
}

const FILE = path.join(ROOT, 'node_modules/.cache/catena-test-times.json');

/** The times of the last runs; of a first run, none. */
export function readTimes(): Map<string, Time> {
  try {
    return new Map(Object.entries(JSON.parse(fs.readFileSync(FILE, 'utf8'))));
  } catch {
    return new Map();
  }
}

/** Remembers the times of a run beside those of files that it did not run. */
export function rememberTimes(times: ReadonlyMap<string, Time>): void {
  const all = Object.fromEntries([...readTimes(), ...times].sort(([a], [b]) => (a < b ? -1 : 1)));
  fs.mkdirSync(path.dirname(FILE), { recursive: true });
  fs.writeFileSync(`${FILE}.${process.pid}`, JSON.stringify(all, null, 1));
  fs.renameSync(`${FILE}.${process.pid}`, FILE);
}

/** Files that wait for half a minute, which the size of their source does not show. */
const WAITING = [
  ...['test/e2e/conflists', 'test/e2e/daemon-upgrade', 'test/e2e/doctor-traffic', 'test/e2e/front'],
  ...['test/e2e/held-up', 'test/e2e/help', 'test/e2e/image', 'test/e2e/why-not-table', 'test/netns/dhcp-kea'],
  ...['test/netns/dhcp-release', 'test/netns/dhcp', 'test/netns/dhcp6-lease', 'test/netns/dhcp6-upkeep'],
].map(file => `${file}.test.ts`);

/**
 * The files, those that take longest first, so that no core idles at the end. What is not remembered comes first, the largest
 * source before others: in a first run these end about as early as in order of their times.
 */
export function longestFirst(files: readonly string[]): string[] {
  const times = readTimes();
  const seconds = (file: string): number => times.get(file)?.seconds ?? Number.POSITIVE_INFINITY;
  const bytes = (file: string): number =>
    WAITING.includes(file) ? Number.MAX_SAFE_INTEGER : fs.statSync(path.join(ROOT, file)).size;
  const order = (a: string, b: string): number =>
    seconds(a) === seconds(b) ? bytes(b) - bytes(a) : seconds(b) - seconds(a);
  return [...files].sort(order);
}

/** A table of the slowest files. What a file does not compute it waits: for its own sleeps and deadlines, or for a core. */
export function renderSlowest(times: ReadonlyMap<string, Time>, count: number): string {
  const rows = [...times].sort(([, a], [, b]) => b.seconds - a.seconds).slice(0, count);
  const number = (value: number): string => Math.max(0, value).toFixed(1).padStart(9);
  return [
    '| seconds | computes |   waits | file',
    ...rows.map(([file, { seconds, cpu }]) => {
      return `|${number(seconds).slice(1)} |${number(cpu)} |${number(seconds - cpu).slice(1)} | ${file}`;
    }),
  ].join('\n');
}

/** Seconds of all files of each folder of test/, the most first: `e2e 1600, netns 1250`. */
export function renderFolders(times: ReadonlyMap<string, Time>): string {
  const sums = new Map<string, number>();
  for (const [file, { seconds }] of times) {
    const folder = file.split('/')[1] ?? file;
    sums.set(folder, (sums.get(folder) ?? 0) + seconds);
  }
  const sorted = [...sums].sort(([, a], [, b]) => b - a);
  return sorted.map(([folder, seconds]) => `${folder} ${Math.round(seconds)}`).join(', ');
}
