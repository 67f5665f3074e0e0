// What does `catena list` do?
import type { AnswerOf } from '../../answers/kinds.ts';
import { listNetworks } from '../../chain/config/load.ts';
import { findReason } from '../../chain/records/recover.ts';
import { listAttachments } from '../../chain/records/result-cache.ts';
import { cacheDirOf } from '../../chain/run/runtime.ts';
import { runnerJournals } from '../../cni/directories.ts';
import { listRecords } from '../../journal/store.ts';
import type { CommandCall } from '../command.ts';
import { printAnswer } from '../output/print.ts';
import { confDirOf, runtimeOf, warn } from '../target.ts';

/**
 * Prints the networks of the configuration directory, the recorded attachments and those that are still to be undone, and reports
 * invalid files.
 */
export async function run(call: CommandCall): Promise<number> {
  const { networks, diagnostics } = listNetworks(confDirOf(call));
  const runtime = runtimeOf(call);
  const { attachments, damaged } = listAttachments(cacheDirOf(runtime));
  const { pods, delegates } = runnerJournals(runtime.stateDir ?? '');
  const journals = [runtime.stateDir ?? '', pods, delegates].map(dir => listRecords(dir));
  const shown = {
    networks: networks.map(({ file, list: { name, version, plugins } }) => {
      return { name, cniVersion: version, plugins: plugins.map(({ type }) => type), file };
    }),
    attachments: attachments.map(({ network, containerId, ifname, netns }) => {
      return { network, containerId, ifname, netns };
    }),
    unsettled: journals
      .flatMap(({ records }) => records)
      .flatMap(record => {
        const { network, containerId, ifname, file } = record;
        const why = findReason(record, runtime.env);
        return why === undefined ? [] : [{ network, containerId, ifname, why, file }];
      }),
  };
  await printAnswer(call, 'Records', shown, {
    text: () => render(shown),
    names: () => shown.networks.map(({ name }) => name),
  });
  for (const { error } of diagnostics) warn(call, error);
  for (const error of [...damaged, ...journals.flatMap(journal => journal.damaged)]) warn(call, error);
  return 0;
}

function render({ networks, attachments, unsettled }: AnswerOf<'Records'>): string {
  return [
    ...networks.map(one => `network ${one.name} ${one.cniVersion} ${one.plugins.join(',')} ${one.file}\n`),
    ...attachments.map(
      one => `attachment ${one.network} ${one.containerId} ${one.ifname} ${one.netns || '-'}\n`,
    ),
    ...unsettled.map(one => `unsettled ${one.network} ${one.containerId} ${one.ifname}: ${one.why}\n`),
  ].join('');
}
