// Which test files run a second time without fronts, and when?
import fs from 'node:fs';
import path from 'node:path';

/** One run of a file, with the executables as built, or with the Bun program under all names. */
export interface Turn {
  readonly file: string;
  readonly front: boolean;
}

/** End-to-end tests for which it makes no difference what the names in `dist/bin` are. */
export const ONE_WAY: Readonly<Record<string, string>> = {
  bench: 'runs the measuring programs',
  'install-upgrade': 'installs fronts over executables without one, and back',
  front: 'is about the front, and compares it with the Bun program',
  package: 'installs the npm package',
  release: 'builds executables of its own',
  ui: 'is about a command that only the Bun program has',
  'ui-page': 'is about the page',
  'why-not': 'is about a command that only the Bun program has',
  'why-not-random': 'is about the same command',
  'why-not-table': 'is about the same command',
};

/** A file that takes no longer runs both ways every time. */
const SHORT_SECONDS = 10;

/** Longer ones take turns: each runs without fronts on one day of so many. */
const DAYS = 4;

/**
 * Whether an end-to-end test that ran with fronts runs without them, too: now, on another day, or never.
 * @param seconds how long it took
 * @param day days since 1970; undefined to run all both ways
 */
export function turnWithoutFront(
  file: string,
  seconds: number,
  day: number | undefined,
): 'now' | 'another day' | 'never' {
  const [, name] = /^test\/e2e\/(.+)\.test\.ts$/.exec(file) ?? [];
  if (name === undefined || Object.hasOwn(ONE_WAY, name)) return 'never';
  if (day === undefined || seconds <= SHORT_SECONDS) return 'now';
  const share = [...name].reduce((sum, char) => sum + char.charCodeAt(0), 0);
  return (share + day) % DAYS === 0 ? 'now' : 'another day';
}

/** Whether the build made fronts: without a C compiler, every name is the Bun program already. */
export function hasFronts(binDir: string): boolean {
  const [front, core] = ['catena', 'catena-core'].map(name =>
    fs.statSync(path.join(binDir, name), { throwIfNoEntry: false }),
  );
  return front !== undefined && core !== undefined && front.ino !== core.ino;
}
