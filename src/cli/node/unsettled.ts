// What does `catena ls --unsettled` print?
import { readRecords } from '../../node/facts.ts';
import type { CommandCall } from '../command.ts';
import { printList } from '../output/print.ts';
import { runtimeOf, warn } from '../target.ts';

/** Prints the operations that are still to be undone, and reports records that cannot be read. */
export async function run(call: CommandCall): Promise<number> {
  const { unsettled, damaged } = readRecords(runtimeOf(call));
  const items = unsettled.map(({ record: { network, containerId, ifname, file }, why }) => {
    return { network, containerId, ifname, why, file };
  });
  await printList(call, 'UnsettledList', items, {
    text: () =>
      items.map(one => `${one.network} ${one.containerId} ${one.ifname}: ${one.why}\n`).join('') ||
      'nothing is unsettled\n',
    names: () => items.map(({ containerId }) => containerId),
  });
  for (const error of damaged) warn(call, error);
  return 0;
}
