// What does `catena repair` do?
import { type Condition, type RepairReport, repair } from '../../chain/repair.ts';
import type { CommandCall } from '../command.ts';
import { runtimeOf, warn } from '../target.ts';

/** One line for each attachment that is not sound and each of its links; exit code 1 when something stays wrong. */
export async function run(call: CommandCall): Promise<number> {
  const [network] = call.positionals;
  const dryRun = call.on('dry-run');
  const scope = { ...(network === undefined ? {} : { network }), dryRun, foreign: call.on('foreign') };
  // What went wrong is in the report.
  const { onWarning: _, ...runtime } = runtimeOf(call);
  const report = await repair(scope, runtime);
  call.out(call.on('json') ? `${JSON.stringify(toJson(report), null, 4)}\n` : renderReport(report, dryRun));
  for (const problem of report.damaged) warn(call, problem);
  const isWrong =
    report.recovered.some(({ error }) => error) ||
    report.attachments.some(({ state }) => state === 'broken') ||
    report.damaged.length > 0;
  return isWrong ? 1 : 0;
}

function renderReport({ recovered, attachments }: RepairReport, dryRun: boolean): string {
  const lines = recovered.map(one => {
    const verb = one.error ? 'stuck' : dryRun ? 'wrong' : 'DEL';
    return `${verb.padEnd(7)} ${nameOf(one)}: ${one.why}${one.error ? `; ${one.error.message}` : ''}`;
  });
  for (const one of attachments.filter(({ state }) => state !== 'sound')) {
    lines.push(`${one.state.padEnd(7)} ${nameOf(one)}${one.why ? `: ${one.why}` : ''}`);
    for (const { link, state, problem, error } of one.links.filter(each => each.state !== 'sound'))
      lines.push(`  ${link} ${state}: ${error?.message ?? problem}`);
    if (one.state === 'broken' && !dryRun)
      lines.push(
        '  hint: what no link puts back needs DEL and ADD; chained links of others may help: --foreign',
      );
  }
  const count = (state: Condition['state']) => attachments.filter(one => one.state === state).length;
  const states = (['sound', 'mended', 'broken', 'skipped'] as const).map(state => `${count(state)} ${state}`);
  return `${[...lines, `attachments: ${states.join(', ')}`].join('\n')}\n`;
}

function nameOf({
  network,
  containerId,
  ifname,
}: Pick<Condition, 'network' | 'containerId' | 'ifname'>): string {
  return `${network} ${containerId} ${ifname}`;
}

function toJson({ recovered, attachments, damaged }: RepairReport): object {
  return {
    recovered: recovered.map(({ containerId, error, ...one }) => ({
      ...one,
      containerID: containerId,
      ...(error ? { error: error.toReply() } : {}),
    })),
    attachments: attachments.map(({ containerId, links, ...one }) => ({
      ...one,
      containerID: containerId,
      links: links.map(({ error, ...link }) => ({ ...link, ...(error ? { error: error.toReply() } : {}) })),
    })),
    damaged: damaged.map(({ message }) => message),
  };
}
