// Does a long TCP transfer go on without a pause while something else happens?
import path from 'node:path';
import { deadline } from './deadline.ts';
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
  /** Segments that were lost: sent again, without the receiver saying that it had them twice, as after an acknowledgement that a busy machine delayed. */
  readonly lost: number;
}

/** A transfer that lasts until its lab is removed. @returns a function that tells how it went so far */
export async function startTransfer(
  lab: Lab,
  way: { readonly from: Namespace; readonly to: Namespace; readonly address: string },
): Promise<() => Promise<Transferred>> {
  const sender = lab.start(way.to, [process.execPath, TRANSFER, 'send', String(PORT)]);
  await within(deadline(10_000), 'sender of a transfer', lineReader(sender.stdout)());
  const argv = [process.execPath, TRANSFER, 'receive', way.address, String(PORT)];
  const receiver = Bun.spawn(['nsenter', `--net=${way.from.path}`, '--', ...argv], {
    stdin: 'pipe',
    stdout: 'pipe',
  });
  const nextLine = lineReader(receiver.stdout);
  await within(deadline(10_000), 'connection of a transfer', nextLine());
  return async () => {
    receiver.stdin.write('how\n');
    receiver.stdin.flush();
    const seen = JSON.parse(await within(deadline(10_000), 'report of a transfer', nextLine()));
    return { ...seen, lost: await lostBy(lab, way.to) };
  };
}

/** As the kernel counts them: `retrans:<now>/<in all>` and `dsack_dups:<n>` (RFC 2883), which ss leaves out while there are none. */
async function lostBy(lab: Lab, sender: Namespace): Promise<number> {
  const { stdout } = await lab.run(sender, ['ss', '-Htin', 'sport', '=', `:${PORT}`]);
  const sum = (counter: RegExp): number =>
    [...stdout.matchAll(counter)].reduce((all, [, count]) => all + Number(count), 0);
  return Math.max(0, sum(/retrans:\d+\/(\d+)/g) - sum(/dsack_dups:(\d+)/g));
}
