// What is gained by deleting the devices of many pods with one request?
import { join } from 'node:path';
import { withHost } from '../helpers/netns.ts';
import type { Samples } from './measure.ts';

/** Deletes the devices of the given number of pods one by one (`single DEL`) and as one group (`group DEL`). */
export function measureRemoval(pods: number, rounds: number): Promise<Samples> {
  return withHost(async lab => {
    const script = join(import.meta.dir, 'removal-inside.ts');
    const argv = [process.execPath, script, String(pods), String(rounds)];
    const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { timeoutMs: 600_000 });
    if (exitCode !== 0) throw new Error(`Cannot measure how devices are deleted: ${stderr}`);
    return new Map(JSON.parse(stdout));
  });
}
