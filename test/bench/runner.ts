// What does the delegate runner cost over the chain that it runs?
import { join } from 'node:path';
import { withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import type { Samples } from './measure.ts';

/**
 * ADD, CHECK and DEL of a chain whose links a warm process starts one after the other, as a runtime does (`bare`), and of
 * the same chain as the one delegate of `catena` (`runner`).
 */
export function measureRunner(links: 'ours' | 'reference', rounds: number): Promise<Samples> {
  return withHost(async lab => {
    const { path } = await lab.container();
    const dir = links === 'ours' ? BIN_DIR : REFERENCE_BIN_DIR;
    const argv = [
      process.execPath,
      join(import.meta.dir, 'runner-inside.ts'),
      path,
      lab.tmp,
      dir,
      String(rounds),
    ];
    const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { timeoutMs: 600_000 });
    if (exitCode !== 0) throw new Error(`Cannot measure the delegate runner: ${stderr}`);
    return new Map(JSON.parse(stdout));
  });
}
