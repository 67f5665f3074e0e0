// What does `catena adopt` do?
import { type Adoption, type AdoptReport, adopt } from '../../adopt/adopt.ts';
import { runnerJournals } from '../../cni/directories.ts';
import type { CommandCall } from '../command.ts';
import { runtimeOf, warn } from '../target.ts';

/** One line for each attachment that was adopted or skipped; exit code 1 when a file of the cache is damaged. */
export async function run(call: CommandCall): Promise<number> {
  const [network] = call.positionals;
  const dryRun = call.on('dry-run');
  const runtime = runtimeOf(call);
  const alsoIn = [runnerJournals(runtime.stateDir ?? '').delegates];
  const scope = { ...(network === undefined ? {} : { network }), dryRun, alsoIn };
  const report = await adopt(scope, runtime);
  call.out(call.on('json') ? `${JSON.stringify(toJson(report), null, 4)}\n` : renderReport(report, dryRun));
  for (const problem of report.damaged) warn(call, problem);
  return report.damaged.length > 0 ? 1 : 0;
}

function renderReport({ attachments }: AdoptReport, dryRun: boolean): string {
  const lines = attachments
    .filter(({ state }) => state !== 'known')
    .map(({ state, network, containerId, ifname, why }) => {
      const verb = state === 'adopted' && dryRun ? 'adopt' : state;
      return `${verb.padEnd(7)} ${network} ${containerId} ${ifname}${why === undefined ? '' : `: ${why}`}`;
    });
  const count = (state: Adoption['state']) => attachments.filter(one => one.state === state).length;
  const adopted = `${count('adopted')} ${dryRun ? 'to adopt' : 'adopted'}`;
  lines.push(`attachments: ${adopted}, ${count('known')} known, ${count('skipped')} skipped`);
  return `${lines.join('\n')}\n`;
}

function toJson({ attachments, damaged }: AdoptReport): object {
  return {
    attachments: attachments.map(({ containerId, ...one }) => ({ ...one, containerID: containerId })),
    damaged: damaged.map(({ message }) => message),
  };
}
