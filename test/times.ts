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

/** For a first run: seconds of the files that would end last if they began late. */
const FIRST: Readonly<Record<string, number>> = {
  'test/twin/chains.test.ts': 130,
  'test/twin/links.test.ts': 130,
  'test/twin/handover.test.ts': 110,
  'test/e2e/compare-table.test.ts': 80,
  'test/twin/ports.test.ts': 80,
  'test/e2e/firewall-reloads.test.ts': 60,
  'test/e2e/podman.test.ts': 60,
  'test/e2e/conformance.test.ts': 60,
  'test/e2e/containerd-damages.test.ts': 60,
  'test/e2e/podman-damages.test.ts': 60,
  'test/netns/plugin-faults.test.ts': 60,
  'test/twin/matrix.test.ts': 50,
  'test/e2e/handover.test.ts': 50,
  'test/simulator/blocks.test.ts': 45,
  'test/e2e/conflists.test.ts': 40,
  'test/e2e/containerd.test.ts': 40,
  'test/storm/storm.test.ts': 35,
  'test/survive/survive.test.ts': 35,
  'test/e2e/chain.test.ts': 30,
  'test/netns/macvlan.test.ts': 25,
};

/** Seconds of a file that is not remembered. */
const UNKNOWN = 5;

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

/** The files, those that take longest first, so that no core idles at the end. */
export function longestFirst<T extends { readonly file: string }>(turns: readonly T[]): T[] {
  const times = readTimes();
  const seconds = ({ file }: T): number => times.get(file)?.seconds ?? FIRST[file] ?? UNKNOWN;
  return [...turns].sort((a, b) => seconds(b) - seconds(a) || (a.file < b.file ? -1 : 1));
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
