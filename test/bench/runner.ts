// What does the delegate runner cost in addition to the chain that it runs?
import fs from 'node:fs';
import { join } from 'node:path';
import { withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import type { Samples } from './measure.ts';

/** Whose plugins; `idle` ones do nothing, so that no wait in the kernel hides the cost of the runner itself. */
export type RunnerLinks = 'ours' | 'reference' | 'idle';

/**
 * ADD, CHECK and DEL of a chain whose plugins a warm process starts one after the other, as a runtime does (`bare`), and of the
 * same chain as the one delegate of `catena` (`runner`).
 */
export function measureRunner(links: RunnerLinks, rounds: number): Promise<Samples> {
  return withHost(async lab => {
    const { path } = await lab.container();
    const dir = { ours: BIN_DIR, reference: REFERENCE_BIN_DIR, idle: writeIdle(lab.tmp) }[links];
    const argv = [
      process.execPath,
      join(import.meta.dir, 'runner-inside.ts'),
      path,
      lab.tmp,
      dir,
      String(rounds),
      links,
    ];
    const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { timeoutMs: 600_000 });
    if (exitCode !== 0) throw new Error(`Cannot measure the delegate runner: ${stderr}`);
    return new Map(JSON.parse(stdout));
  });
}

/** @returns the directory of a plugin that only replies */
function writeIdle(tmp: string): string {
  const dir = join(tmp, 'idle');
  fs.mkdirSync(dir);
  fs.writeFileSync(join(dir, 'idle'), '#!/bin/sh\necho \'{"cniVersion":"1.0.0"}\'\n', { mode: 0o755 });
  return dir;
}
