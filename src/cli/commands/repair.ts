// What does `catena repair` do?
import { listNetworks, NetworkNotFound } from '../../chain/config/load.ts';
import {
  type AttachmentCondition,
  findRecovery,
  type RepairReport,
  type RepairScope,
  repair,
} from '../../chain/records/repair.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { type AttachmentId, keyOf } from '../../cni/attachment.ts';
import { runnerJournals } from '../../cni/directories.ts';
import { defined, didYouMean } from '../../cni/json.ts';
import { recoverPods } from '../../delegate/delete.ts';
import { listPods, whyEnded } from '../../delegate/record.ts';
import { oneLine } from '../../lab/words.ts';
import { withoutElements } from '../../node/words.ts';
import { appendHistory } from '../../observe/history.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import type { CommandCall } from '../command.ts';
import { withReply } from '../failure.ts';
import { eventsOfRepair } from '../log/events.ts';
import { readNames, readTitles } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';
import { confDirOf, runtimeOf } from '../target.ts';
import { during } from '../terminal/progress.ts';

/** Prints a line for each attachment that is not sound and each of its plugins; exit code 1 if a problem remains. */
export async function run(call: CommandCall): Promise<number> {
  const [network] = call.positionals;
  const dryRun = call.on('dry-run');
  const scope = { ...defined({ network }), dryRun, foreign: call.on('foreign') };
  // The report already has the warnings.
  const { onWarning: _, ...runtime } = runtimeOf(call);
  const report = await during(call, 'repair', 'CHECK of every attachment', () => repairAll(scope, runtime));
  const names = readNames(call);
  if (!dryRun && runtime.stateDir !== undefined)
    appendHistory(runtime.stateDir, eventsOfRepair(report, names));
  const nameOf = readTitles(call, names);
  await printAnswer(call, 'RepairReport', toJson(report), () => renderReport(report, nameOf, dryRun));
  for (const problem of report.damaged) call.warn(problem);
  const isEmpty = Object.values(report).every(list => list.length === 0);
  if (network !== undefined && isEmpty) checkConfigured(call, network);
  const isWrong =
    report.recovered.some(({ error }) => error) ||
    report.attachments.some(({ state }) => state === 'broken') ||
    report.damaged.length > 0 ||
    call.signal.aborted;
  return isWrong ? 1 : 0;
}

/** Pods come first, since that undoes their attachments too. Of a pod, each network is repaired, instead of the runner's call. */
async function repairAll(scope: RepairScope, runtime: Runtime): Promise<RepairReport> {
  const { pods, delegates } = runnerJournals(runtime.stateDir ?? '');
  const recovered = scope.dryRun ? [] : await recoverPods(pods, { ...scope, all: true }, runtime);
  const { pods: listed, damaged } = listPods(pods, scope.network);
  const waiting = scope.dryRun
    ? listed.flatMap(pod => findRecovery(pod.record, runtime, whyEnded(pod, runtime.env)))
    : [];
  const inParts = new Set(listed.map(({ record }) => keyOf(record)));
  const report = await repair({ ...scope, journals: [delegates], inParts }, runtime);
  return {
    ...report,
    recovered: [...recovered, ...waiting, ...report.recovered],
    damaged: [...damaged, ...report.damaged],
  };
}

function renderReport(
  { recovered, attachments }: RepairReport,
  nameOf: (id: AttachmentId) => string,
  dryRun: boolean,
): string {
  const lines = recovered.map(one => {
    const verb = one.error ? 'stuck' : dryRun ? 'wrong' : 'DEL';
    // Usually it fails as it failed before.
    const error = one.error && !one.why.includes(one.error.message) ? `; ${one.error.message}` : '';
    return `${verb.padEnd(7)} ${nameOf(one)}: ${one.why}${error}`;
  });
  if (recovered.some(({ error }) => error?.plugin))
    lines.push(
      '  hint: if a third-party plugin can never delete its part, "catena del --forget" deletes ours and lists the rest',
    );
  for (const one of attachments.filter(({ state }) => state !== 'sound')) {
    lines.push(`${one.state.padEnd(7)} ${nameOf(one)}${one.why ? `: ${one.why}` : ''}`);
    for (const { type, state, problem, error } of one.plugins.filter(each => each.state !== 'sound'))
      lines.push(
        `  ${type} ${state}${state === 'mended' ? '; CHECK had reported' : ''}: ${withoutElements(error?.message ?? problem ?? '')}`,
      );
    if (one.state === 'broken' && one.plugins.length && !dryRun)
      lines.push(
        '  hint: run DEL and ADD to restore what no plugin can repair; --foreign runs ADD again for third-party chained plugins',
      );
  }
  const count = (state: AttachmentCondition['state']) =>
    attachments.filter(one => one.state === state).length;
  const states = (['sound', 'mended', 'broken', 'skipped'] as const).map(state => `${count(state)} ${state}`);
  const stuck = recovered.filter(({ error }) => error).length;
  if (stuck > 0) states.push(`${stuck} stuck`);
  return `${[...lines, `attachments: ${states.join(', ')}`].map(oneLine).join('\n')}\n`;
}

function toJson({ recovered, attachments, damaged }: RepairReport): AnswerOf<'RepairReport'> {
  return {
    recovered: recovered.map(withReply),
    attachments: attachments.map(({ plugins, ...one }) => ({ ...one, plugins: plugins.map(withReply) })),
    damaged: damaged.map(({ message }) => message),
  };
}

/**
 * Called if nothing was found for the network, since that may mean that its name was mistyped.
 * @throws CniError 7 if no file configures it either
 */
function checkConfigured(call: CommandCall, network: string): void {
  const dir = confDirOf(call);
  const names = listNetworks(dir).networks.map(({ list }) => list.name);
  if (names.includes(network)) return;
  const known = names.length
    ? `configured are ${names.map(name => JSON.stringify(name)).join(', ')}${didYouMean(network, names)}`
    : 'no network is configured';
  const where = `: it has no recorded attachment, and no file in "${dir}" configures it; ${known}`;
  throw new NetworkNotFound(network, where);
}
