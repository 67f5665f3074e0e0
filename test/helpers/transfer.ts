// Does a long TCP transfer go on without a pause while something else happens?
import path from 'node:path';
import { lineReader, within } from './lines.ts';
import type { Lab, Namespace } from './netns.ts';

const TRANSFER = path.resolve(import.meta.dir, '../fixtures/transfer.ts');
const PORT = 5201;

/** A transfer so far. */
export interface Transferred {
  readonly bytes: number;
  /** Longest time without a byte, in milliseconds. */
  readonly longestGapMs: number;
  readonly isOpen: boolean;
  /** Segments that the sender's kernel sent again. */
  readonly retransmitted: number;
}

/** A transfer that lasts until its lab is removed. @returns a function that tells how it went so far */
export async function startTransfer(
  lab: Lab,
  way: { readonly from: Namespace; readonly to: Namespace; readonly address: string },
): Promise<() => Promise<Transferred>> {
  const sender = lab.start(way.to, [process.execPath, TRANSFER, 'send', String(PORT)]);
  await within(10_000, 'sender of a transfer', lineReader(sender.stdout)());
  const argv = [process.execPath, TRANSFER, 'receive', way.address, String(PORT)];
  const receiver = Bun.spawn(['nsenter', `--net=${way.from.path}`, '--', ...argv], {
    stdin: 'pipe',
    stdout: 'pipe',
  });
  const nextLine = lineReader(receiver.stdout);
  await within(10_000, 'connection of a transfer', nextLine());
  return async () => {
    receiver.stdin.write('how\n');
    receiver.stdin.flush();
    const seen = JSON.parse(await within(10_000, 'report of a transfer', nextLine()));
    return { ...seen, retransmitted: await retransmittedBy(lab, way.to) };
  };
}

/** As the kernel counts them: `retrans:<now>/<in all>`, which ss leaves out while there are none. */
async function retransmittedBy(lab: Lab, sender: Namespace): Promise<number> {
  const { stdout } = await lab.run(sender, ['ss', '-Htin', 'sport', '=', `:${PORT}`]);
  return [...stdout.matchAll(/retrans:\d+\/(\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0);
}
