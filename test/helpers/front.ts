// How does a test get fronts of its own: with another program in place of the Bun program, or built with sanitizers?
import fs from 'node:fs';
import path from 'node:path';
import { type Finished, run } from './command.ts';
import { ROOT } from './source-tree.ts';

const BUILT = path.join(ROOT, 'dist/bin/tuning');
const CORE = path.join(ROOT, 'dist/bin/catena-core');
const SOURCE = path.join(ROOT, 'plugins/front/front.c');
const SANITIZERS = [
  '-DFRONT_HOSTED',
  '-g',
  '-std=gnu11',
  '-fsanitize=address,undefined',
  '-fno-sanitize-recover=all',
];

/** The fronts that tests run: as built, and with sanitizers that end it at any error in memory or arithmetic. */
export const BUILDS = ['as built', 'with sanitizers'] as const;

/** Why there is no front; undefined if there is one. */
export function findFrontProblem(): string | undefined {
  const [front, core] = [BUILT, CORE].map(file => fs.statSync(file, { throwIfNoEntry: false }));
  if (front === undefined || core === undefined) return 'needs the executables (npm run build)';
  return front.ino === core.ino ? 'needs a front: there was no C compiler' : undefined;
}

/** Stands for the Bun program: prints its arguments, what the front told it and its standard input, or judges a silence. */
const STUB = `#!/bin/sh
if [ "$1" = --judge-silence ]; then echo "$3" >> "$0.judged"; while [ -e "$0.held" ]; do sleep 0.05; done; exit "$(cat "$0.verdict")"; fi
printf '%s|%s|' "$*" "\${CATENA_UNANSWERED%% *}"
exec cat
`;

/** A front named `tuning` and the command `catena`, beside a stub. */
export interface StubbedFront {
  readonly dir: string;
  /** The verdict of the stub about a silence: 10 wait, 11 declined, 12 lost. */
  setVerdict(status: number): void;
  /** Has the stub keep its verdict to itself. @returns lets it say it */
  holdVerdict(): () => void;
  /** The keys that the stub was asked about. */
  judged(): string[];
}

/** @throws Error if the compiler fails */
export async function makeStubbedFront(dir: string, build: (typeof BUILDS)[number]): Promise<StubbedFront> {
  fs.mkdirSync(dir, { recursive: true });
  const front = path.join(dir, 'tuning');
  if (build === 'as built') fs.copyFileSync(BUILT, front);
  else {
    const argv = ['cc', ...SANITIZERS, '-I', path.join(ROOT, 'dist/front'), SOURCE, '-o', front];
    const { exitCode, stderr } = await run(argv, { timeoutMs: 120_000 });
    if (exitCode !== 0) throw new Error(`Cannot compile the front with sanitizers: ${stderr}`);
  }
  fs.linkSync(front, path.join(dir, 'catena'));
  const stub = path.join(dir, 'catena-core');
  fs.writeFileSync(stub, STUB, { mode: 0o755 });
  const setVerdict = (status: number): void => fs.writeFileSync(`${stub}.verdict`, String(status));
  setVerdict(10);
  return {
    dir,
    setVerdict,
    holdVerdict() {
      fs.writeFileSync(`${stub}.held`, '');
      return () => fs.rmSync(`${stub}.held`);
    },
    judged: () =>
      fs.existsSync(`${stub}.judged`) ? fs.readFileSync(`${stub}.judged`, 'utf8').trim().split('\n') : [],
  };
}

/** Runs the Bun program under a name, as without a front. */
export async function runCore(
  name: string,
  env: Record<string, string>,
  stdin?: Uint8Array,
): Promise<Finished> {
  const child = Bun.spawn([CORE], {
    argv0: path.join(path.dirname(CORE), name),
    env: { PATH: process.env.PATH, ...env },
    ...{ stdin: stdin ?? 'ignore', stdout: 'pipe', stderr: 'pipe', timeout: 60_000 },
  });
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  return { exitCode: await child.exited, stdout, stderr };
}
