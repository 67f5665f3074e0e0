// What is gained by deleting the devices of many pods with one request, and by leaving the bridge of the last one?
import { join } from 'node:path';
import { withHost } from '../helpers/netns.ts';
import { quantile, type Samples } from './measure.ts';
import { type Row, row } from './row.ts';

/**
 * Deletes the devices of the given number of pods one by one (`single DEL`) and as one group (`group DEL`); and those of the last
 * pod of a bridge: `last pod pair`, `last pod pair, then bridge`, `last pod pair with bridge`.
 */
export function measureRemoval(pods: number, rounds: number): Promise<Samples> {
  return withHost(async lab => {
    const script = join(import.meta.dir, 'removal-inside.ts');
    const argv = [process.execPath, script, String(pods), String(rounds)];
    const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { timeoutMs: 600_000 });
    if (exitCode !== 0) throw new Error(`Cannot measure how devices are deleted: ${stderr}`);
    return new Map(JSON.parse(stdout));
  });
}

/** The least that the kernel takes for a DEL, both columns ours: the pair alone, and the same with its bridge. */
export function floorRows(samples: Samples): Row[] {
  const median = (part: string) => quantile(samples.get(`last pod ${part}`));
  return ['pair, then bridge', 'pair with bridge'].map(part =>
    row(`kernel, DEL of the last pod: pair alone | ${part}`, 'ms', median('pair'), median(part)),
  );
}
