// What does `catena ls --unsettled` print?
import { findReason } from '../../chain/records/recover.ts';
import { runnerJournals } from '../../cni/directories.ts';
import { listRecords } from '../../journal/store.ts';
import type { CommandCall } from '../command.ts';
import { printAnswer } from '../output/print.ts';
import { runtimeOf, warn } from '../target.ts';

/** Prints the operations that are still to be undone, and reports records that cannot be read. */
export async function run(call: CommandCall): Promise<number> {
  const { stateDir = '', env } = runtimeOf(call);
  const { pods, delegates } = runnerJournals(stateDir);
  const journals = [stateDir, pods, delegates].map(dir => listRecords(dir));
  const items = journals
    .flatMap(({ records }) => records)
    .flatMap(record => {
      const { network, containerId, ifname, file } = record;
      const why = findReason(record, env);
      return why === undefined ? [] : [{ network, containerId, ifname, why, file }];
    });
  await printAnswer(
    call,
    'UnsettledList',
    { items },
    {
      text: () =>
        items.map(one => `${one.network} ${one.containerId} ${one.ifname}: ${one.why}\n`).join('') ||
        'nothing is unsettled\n',
      names: () => items.map(({ containerId }) => containerId),
    },
  );
  for (const error of journals.flatMap(({ damaged }) => damaged)) warn(call, error);
  return 0;
}
