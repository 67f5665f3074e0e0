// How are thousands of inputs pushed through all doors, and what is the outcome?
import path from 'node:path';
import { TEST_PATH } from '../helpers/command.ts';
import { ROOT } from '../helpers/source-tree.ts';
import type { Failure } from './door.ts';
import { DOORS } from './doors.ts';

/** How much to try. */
export interface FuzzOptions {
  /** In total, distributed over the doors according to their cost. */
  readonly inputs: number;
  readonly seed: number;
  /** Only doors whose name contains this. */
  readonly door?: string | undefined;
  /** Concurrent processes; default 2. */
  readonly jobs?: number;
  /** Called immediately with every failure. */
  readonly onFailure?: (failure: Failure) => void;
}

/** The figures of a run. */
export interface FuzzReport {
  readonly inputs: number;
  readonly doors: number;
  /** Inputs that once broke a promise, and are tried every time. */
  readonly seeds: number;
  readonly seed: number;
  readonly failures: readonly Failure[];
  /** Files outside of our directories. */
  readonly strayFiles: readonly string[];
  readonly seconds: number;
  /** Inputs of each door. */
  readonly each: readonly (readonly [door: string, inputs: number])[];
}

/** The task of a process: push inputs through a door, or its kept seeds (`inputs: 0`), or look for stray files (without a door). */
export interface Task {
  readonly door?: string;
  readonly inputs: number;
  readonly seed: number;
  /** Report every input before it is tried. */
  readonly telling?: boolean;
}

/** The process's reply. */
export interface Outcome {
  readonly failure?: Failure;
  readonly strayFiles?: readonly string[];
  readonly input?: string;
}

/** Inputs of one task: at most this many are lost when one of them hangs. */
const CHUNK = 400;
/** A chunk takes a second or two, on a machine under load ten times that. */
const TASK_DEADLINE_MS = 120_000;

/**
 * Pushes inputs through every door, the kept seeds first. The processes run in network and mount namespaces of their own, with
 * temporary directories, so they cannot harm the machine.
 */
export async function runFuzz({
  inputs,
  seed,
  door = '',
  jobs = 2,
  onFailure,
}: FuzzOptions): Promise<FuzzReport> {
  const began = performance.now();
  const doors = DOORS.filter(({ name }) => name.includes(door));
  const total = doors.reduce((sum, { weight }) => sum + weight, 0);
  const each = doors.map(({ name, weight }) => [name, Math.ceil((inputs * weight) / total)] as const);
  const tasks = [
    ...doors.filter(one => one.seeds > 0).map(({ name }): Task => ({ door: name, inputs: 0, seed })),
    ...inTurns(each.map(([name, count]) => chunksOf(name, count, seed))),
  ];
  const failures: Failure[] = [];
  const strayFiles: string[] = [];
  const broken = new Set<string>();
  await Promise.all(
    Array.from({ length: jobs }, async () => {
      let child = startChild();
      for (let task = tasks.shift(); task !== undefined; task = tasks.shift()) {
        // One failure of a door is enough to investigate.
        if (broken.has(task.door ?? '')) continue;
        const outcome = await child.ask(task);
        const failure = outcome === undefined ? await explain(task) : outcome.failure;
        if (outcome === undefined) child = startChild();
        if (failure === undefined) continue;
        broken.add(failure.door);
        failures.push(failure);
        onFailure?.(failure);
      }
      strayFiles.push(
        ...((await child.ask({ inputs: 0, seed }))?.strayFiles ?? ['(a process that did not answer)']),
      );
      await child.end();
    }),
  );
  return {
    inputs: each.reduce((sum, [, count]) => sum + count, 0),
    doors: doors.length,
    seeds: doors.reduce((sum, one) => sum + one.seeds, 0),
    seed,
    failures,
    strayFiles,
    each,
    seconds: (performance.now() - began) / 1000,
  };
}

/** The figures as a table of one row, and the failures. */
export function renderFigures(report: FuzzReport): string {
  const { inputs, doors, seeds, seed, failures, strayFiles, seconds } = report;
  return [
    '| inputs tried | doors | kept seeds | seed | broken promises | files elsewhere | seconds |',
    '|---|---|---|---|---|---|---|',
    `| ${[inputs, doors, seeds, seed, failures.length, strayFiles.length, seconds.toFixed(0)].join(' | ')} |`,
    ...failures.map(renderFailure),
    ...strayFiles.map(file => `  STRAY ${file}`),
    '',
  ].join('\n');
}

/** The number of inputs of each door. */
export function renderDoors({ each }: FuzzReport): string {
  return ['| door | inputs |', '|---|---|', ...each.map(one => `| ${one.join(' | ')} |`), '', ''].join('\n');
}

/** A failure with what is needed to reproduce it, and to keep it as a seed. */
export function renderFailure({ door, seed, input, problem }: Failure): string {
  return [
    `  FAILED door "${door}": ${problem}`,
    `    again: npm run fuzz -- --door ${JSON.stringify(door)} --inputs ${CHUNK} --seed ${seed}`,
    `    to be added to "seeds" of the door: ${input.length > 4_000 ? `${input.slice(0, 4_000)}…` : input}`,
  ].join('\n');
}

function chunksOf(door: string, count: number, seed: number): Task[] {
  const chunks: Task[] = [];
  for (let done = 0; done < count; done += CHUNK) {
    chunks.push({ door, inputs: Math.min(CHUNK, count - done), seed: seed + chunks.length });
  }
  return chunks;
}

/** The first of each list, then the second of each. */
function inTurns<T>(lists: readonly T[][]): T[] {
  const longest = Math.max(0, ...lists.map(list => list.length));
  return Array.from({ length: longest }, (_, i) => lists.flatMap(list => list.slice(i, i + 1))).flat();
}

/** Repeats a task that killed or hung its process, in one that reports every input before it tries it. */
async function explain(task: Task): Promise<Failure> {
  let last = '';
  const child = startChild(input => {
    last = input;
  });
  const outcome = await child.ask({ ...task, telling: true });
  if (outcome !== undefined) await child.end();
  const problem =
    outcome === undefined ? 'the process crashed or hung' : 'the process crashed or hung once, and not again';
  return outcome?.failure ?? { door: task.door ?? '', seed: task.seed, input: last, problem };
}

interface Child {
  /** Undefined if it crashed, or did not reply in time. */
  ask(task: Task): Promise<Outcome | undefined>;
  end(): Promise<void>;
}

// The project is mounted at its own path again, in case it is below a directory that was replaced.
const SETUP = `
set -e
mount -t tmpfs tmpfs /mnt && mkdir /mnt/project && touch /mnt/bun
mount --rbind "$1" /mnt/project && mount --bind "$2" /mnt/bun
for dir in /run /tmp /var/lib; do mount -t tmpfs tmpfs $dir; done
mkdir -p "$1" /run/netns && mount --rbind /mnt/project "$1" && cd "$1"
ip link set lo up
ip netns add c1
exec /mnt/bun test/fuzz/child.ts
`;

/** Also a process id namespace: a daemon that a door has started dies with it, however it ends. */
const UNSHARE = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];

function startChild(onInput?: (input: string) => void): Child {
  const inUserNamespace = process.getuid?.() === 0 ? [] : ['-U', '-r'];
  const argv = ['unshare', ...inUserNamespace, ...UNSHARE, 'sh', '-c', SETUP, 'sh', ROOT, process.execPath];
  const process_ = Bun.spawn(argv, {
    env: { PATH: TEST_PATH, LC_ALL: 'C', CATENA_LOG_LEVEL: 'error' },
    cwd: path.resolve(ROOT),
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  });
  const answers = linesOf(process_.stdout);
  return {
    async ask(task) {
      process_.stdin.write(`${JSON.stringify(task)}\n`);
      process_.stdin.flush();
      const timer = setTimeout(() => process_.kill('SIGKILL'), TASK_DEADLINE_MS);
      try {
        for (;;) {
          const { value, done } = await answers.next();
          if (done || value === undefined) return undefined;
          const outcome = JSON.parse(value) as Outcome;
          if (outcome.input === undefined) return outcome;
          onInput?.(outcome.input);
        }
      } finally {
        clearTimeout(timer);
      }
    },
    async end() {
      process_.stdin.end();
      const timer = setTimeout(() => process_.kill('SIGKILL'), 10_000);
      await process_.exited;
      clearTimeout(timer);
    },
  };
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, undefined> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const piece of stream) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = parts.pop() ?? '';
    yield* parts;
  }
  return undefined;
}
