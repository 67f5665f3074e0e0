// What does `catena adopt` do?
import { type Adoption, type AdoptReport, adopt } from '../../adopt/adopt.ts';
import type { AnswerOf } from '../../answers/kinds.ts';
import { defined } from '../../cni/defined.ts';
import { runnerJournals } from '../../cni/directories.ts';
import type { CommandCall } from '../command.ts';
import { checkConfigured } from '../known-network.ts';
import { noteDone } from '../log/events.ts';
import { printAnswer } from '../output/print.ts';
import { runtimeOf, warn } from '../target.ts';

/** Prints one line for each attachment that was adopted or skipped; exit code 1 if a cache file is damaged. */
export async function run(call: CommandCall): Promise<number> {
  const [network] = call.positionals;
  const dryRun = call.on('dry-run');
  const runtime = runtimeOf(call);
  const alsoIn = [runnerJournals(runtime.stateDir ?? '').delegates];
  const scope = { ...defined({ network }), dryRun, alsoIn };
  const report = await adopt(scope, runtime);
  for (const one of dryRun ? [] : report.attachments)
    if (one.state === 'adopted') noteDone(call, 'ADOPT', 'another runtime attached it', { id: one });
  await printAnswer(call, 'AdoptionReport', toJson(report), { text: () => renderReport(report, dryRun) });
  for (const problem of report.damaged) warn(call, problem);
  const isEmpty = report.attachments.length + report.damaged.length === 0;
  if (network !== undefined && isEmpty) checkConfigured(call, network);
  return report.damaged.length > 0 ? 1 : 0;
}

function renderReport({ attachments, forgotten }: AdoptReport, dryRun: boolean): string {
  const gone = forgotten.map(({ network, containerId, ifname }) => {
    return `forgot  ${network} ${containerId} ${ifname}: its runtime has deleted it`;
  });
  const adoptions = attachments
    .filter(({ state }) => state !== 'known')
    .map(({ state, network, containerId, ifname, why }) => {
      const verb = state === 'adopted' && dryRun ? 'adopt' : state;
      return `${verb.padEnd(7)} ${network} ${containerId} ${ifname}${why === undefined ? '' : `: ${why}`}`;
    });
  const count = (state: Adoption['state']) => attachments.filter(one => one.state === state).length;
  const adopted = `${count('adopted')} ${dryRun ? 'to adopt' : 'adopted'}`;
  const lines = [...gone, ...adoptions];
  lines.push(`attachments: ${adopted}, ${count('known')} known, ${count('skipped')} skipped`);
  return `${lines.join('\n')}\n`;
}

function toJson({ attachments, forgotten, damaged }: AdoptReport): AnswerOf<'AdoptionReport'> {
  return {
    attachments,
    ...(forgotten.length ? { forgotten } : {}),
    damaged: damaged.map(({ message }) => message),
  };
}
