// What does `catena compare` say of a set of executables of which one is broken?
import { expect } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { quickZod } from '../../plugins/build/build.ts';
import { CATENA } from './catena.ts';
import { run, TEST_PATH } from './command.ts';
import { deadline } from './deadline.ts';
import { ROOT } from './source-tree.ts';

export const COMPARED = join(ROOT, 'conflists/bridge-full.conflist');
export const COMPARE_DEADLINE_MS = deadline(300_000);

interface Told {
  readonly step: string;
  readonly where: string;
  readonly what: string;
  readonly first?: string;
  readonly second?: string;
}

/** Runs it. @returns for each plugin what differs, one line each */
export async function compare(...args: string[]) {
  const argv = [CATENA, 'compare', ...args, '--json'];
  const { exitCode, stdout, stderr } = await run(argv, {
    env: { PATH: TEST_PATH },
    timeoutMs: COMPARE_DEADLINE_MS,
  });
  expect(stderr).toBe('');
  const { same, plugins } = JSON.parse(stdout);
  const lines = (told: readonly Told[]) =>
    told.map(({ step, where, what, first = 'nothing', second = 'nothing' }) => {
      const subject = [where, what].filter(Boolean).join(': ');
      return `${step} ${subject}: ${first} | ${second}`;
    });
  const byPlugin = plugins.map(({ type, differences }: { type: string; differences: Told[] }) => {
    return [type, lines(differences)] as const;
  });
  return { exitCode, same, byPlugin: new Map<string, string[]>(byPlugin) };
}

/** Builds the broken plugins. @returns a directory for them, which the caller removes */
export async function buildBroken(): Promise<string> {
  const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-compare-'));
  fs.chmodSync(tmp, 0o755);
  await compileBroken(join(tmp, 'broken'));
  return tmp;
}

/**
 * As our executables are compiled: an examination calls one a hundred times, and as plain source each call takes four times as long.
 * @param wrong the fault; default that named by the directory which it is called from
 */
export async function compileBroken(outfile: string, wrong?: string): Promise<void> {
  await Bun.build({
    entrypoints: [join(ROOT, 'test/fixtures/broken-plugins.ts')],
    target: 'bun',
    format: 'esm',
    minify: true,
    splitting: true,
    bytecode: true,
    plugins: [quickZod],
    ...(wrong === undefined ? {} : { define: { WRONG: JSON.stringify(wrong) } }),
    compile: { outfile, jitPolicy: 100 },
  });
}

/** A directory with one broken plugin, under its name; `tmp` is of {@link buildBroken}. */
export function brokenDir(tmp: string, name: string, plugin: string): string {
  const dir = join(tmp, name);
  fs.mkdirSync(dir, { recursive: true });
  if (!fs.existsSync(join(dir, plugin))) fs.linkSync(join(tmp, 'broken'), join(dir, plugin));
  return dir;
}
