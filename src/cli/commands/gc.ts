// What does `catena gc` do?

import type { Conflist } from '../../chain/config/conflist.ts';
import {
  collectGarbage,
  type GarbagePlan,
  type GcScope,
  planGarbage,
} from '../../chain/records/collect-garbage.ts';
import { type AttachmentId, findContainerIdProblem } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { ASKED_VARIABLE } from '../../cni/env.ts';
import { invalidConfig } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { loadAbouts, typesOf } from '../../cni/plugin-about.ts';
import type { AttachmentKey } from '../../cni/schemas.ts';
import { startedAt } from '../../files/process-stat.ts';
import { findIfnameProblem } from '../../net/interface.ts';
import { readRecords } from '../../node/facts.ts';
import { type Look, lookOrTell } from '../../node/garbage/find-traced.ts';
import { FAILED_WITHOUT_CODE } from '../../observe/record.ts';
import { collectGone, type GoneAttachment } from '../../watch/collect-gone.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, secondsOf, UsageError } from '../command.ts';
import { withReply } from '../failure.ts';
import { noteDone } from '../log/events.ts';
import { readTitles } from '../node/read.ts';
import { printAnswer, printList } from '../output/print.ts';
import { loadTarget, runtimeOf, watched } from '../target.ts';
import { during } from '../terminal/progress.ts';

/** Deletes attachments that are not named as valid; with `--all`, every recorded attachment of the network. */
export async function run(call: CommandCall): Promise<number> {
  if (call.on('gone')) return gcGone(call);
  if (call.positionals.length === 0)
    throw new UsageError('Cannot collect garbage: name the network, or use --gone');
  const named = scopeOf(call);
  const list = loadTarget(call);
  const scope = { ...named, look: await lookFor(call, list) };
  if (!call.on('dry-run')) {
    if (list.disableGC) {
      const text = `Cannot collect garbage of network "${list.name}": its list sets "disableGC", so nothing is deleted; catena del deletes one attachment`;
      call.warn(invalidConfig(text));
    }
    warnOfUnknown(call, list, scope);
    await during(call, 'gc', `network ${list.name}`, () =>
      watched(call, 'GC', undefined, runtime => collectGarbage(list, scope, runtime)),
    );
    return 0;
  }
  const plan = planGarbage(list, scope, runtimeOf(call));
  await printAnswer(call, 'GarbagePlan', toJson(plan), () => renderPlan(plan, call.on('all')));
  for (const problem of plan.damaged) call.warn(problem);
  return 0;
}

/** A mistyped id keeps nothing: the attachment that it was meant for is about to be deleted, so the user is warned. */
function warnOfUnknown(call: CommandCall, list: Conflist, scope: GcScope): void {
  if (!('valid' in scope)) return;
  const valid = typeof scope.valid === 'function' ? scope.valid() : scope.valid;
  const { stale, kept } = planGarbage(list, { valid }, runtimeOf(call));
  for (const key of unknownIn({ valid, stale, kept })) {
    const text = `Cannot find "${key}" of --valid among the recorded attachments of network "${list.name}"`;
    call.warn(invalidConfig(text));
  }
}

/** Named as valid, and not on record. */
function unknownIn({ valid, stale, kept }: Pick<GarbagePlan, 'valid' | 'stale' | 'kept'>): string[] {
  const onRecord = new Set([...stale, ...kept].map(one => `${one.containerId}/${one.ifname}`));
  return valid.map(key => `${key.containerID}/${key.ifname}`).filter(key => !onRecord.has(key));
}

/** The cache is shared with every runtime of the host, so deleting everything must be requested explicitly. */
function scopeOf(call: CommandCall): GcScope {
  const valid = call.texts('valid');
  if (call.on('all') === valid.length > 0) {
    throw new UsageError(
      'Cannot collect garbage: name the attachments to keep with --valid <id>/<ifname>, or keep none with --all',
    );
  }
  const more = { unrecorded: call.on('foreign'), since: Number(call.env[ASKED_VARIABLE]) || startedAt() };
  return call.on('all') ? { all: true, ...more } : { valid: valid.map(parseKey), ...more };
}

/** Looks at the node for attachments of the network. */
async function lookFor(call: CommandCall, list: Conflist): Promise<Look> {
  const find = await loadAbouts(call.plugins.find, typesOf(list));
  return lookOrTell(problem => call.warn(problem), { runDir: runDir(call.env), find });
}

function parseKey(text: string): AttachmentKey {
  const [containerID = '', ifname = '', ...more] = text.split('/');
  const problem =
    !containerID || !ifname || more.length > 0
      ? 'expected <container id>/<ifname>'
      : (findContainerIdProblem(containerID) ?? findIfnameProblem(ifname));
  if (problem === undefined) return { containerID, ifname };
  throw new UsageError(`Cannot use --valid "${text}": ${problem}`);
}

/** One line for each thing that would be done, with the reason. */
function renderPlan(plan: GarbagePlan, all: boolean): string {
  if (plan.disabled) return `network ${plan.network}: nothing, since the list sets "disableGC"\n`;
  const why = all ? '--all keeps none' : 'no --valid names it';
  const rows = [
    ...plan.stale.flatMap(one => [
      `DEL   ${one.containerId}/${one.ifname}: ${one.why ?? why}`,
      ...(one.traces ?? []).map(trace => `      ${trace}`),
    ]),
    ...plan.kept.map(one => `keep  ${one.containerId}/${one.ifname}: ${one.why ?? '--valid names it'}`),
    ...plan.unnamed.flatMap(one => [
      `left  ${one.containerId}/${one.ifname}: the name of its container is unknown`,
      ...one.traces.map(trace => `      ${trace}`),
    ]),
    ...unknownIn(plan).map(key => `keep  ${key}: --valid names it; it is not recorded`),
    ...plan.plugins.map(type => `GC    ${type}: deletes what it finds and is not listed as valid`),
    ...(plan.plugins.length ? [] : [`no GC for plugins${whyNoGc(plan)}`]),
  ];
  return [`network ${plan.network}:`, ...rows.map(row => `  ${row}`), ''].join('\n');
}

function whyNoGc({ unnamed }: GarbagePlan): string {
  return unnamed.some(({ inUse }) => inUse)
    ? ': they could delete resources that are still in use'
    : ' of others: GC exists since version 1.1.0 of the specification';
}

function toJson({ network, disabled, stale, kept, unnamed, ...plan }: GarbagePlan): AnswerOf<'GarbagePlan'> {
  type Listed = Pick<GarbagePlan['stale'][number], 'containerId' | 'ifname' | 'why' | 'traces'>;
  const key = ({ containerId, ifname, why, traces }: Listed) => {
    return { containerId, ifname, ...defined({ why, objects: traces }) };
  };
  return {
    ...{ network, disabled, delete: stale.map(key), keep: kept.map(key) },
    ...(unnamed.length ? { unnamed: unnamed.map(key) } : {}),
    valid: plan.valid.map(({ containerID, ...one }) => ({ containerId: containerID, ...one })),
    gc: plan.plugins,
    damaged: plan.damaged.map(({ message }) => message),
  };
}

/** Runtimes remove a namespace and call DEL right after it; a busy node may take seconds for that. */
const GRACE_SECONDS = 10;

/** Deletes attachments whose namespace is gone, of one network or of all; exit code 1 if a deletion failed. */
async function gcGone(call: CommandCall): Promise<number> {
  const [network] = call.positionals;
  const runtime = runtimeOf(call);
  const scope = {
    network,
    graceMs: 1_000 * secondsOf(call, 'grace', GRACE_SECONDS, { zero: true }),
    dryRun: call.on('dry-run'),
  };
  const titleOf = readTitles(call);
  const report = await during(call, 'gc', 'attachments that outlived their namespace', () =>
    collectGone(() => readRecords(runtime).standing, scope, runtime),
  );
  for (const { state, why, error, ...id } of report)
    if (state === 'deleted' || state === 'failed') {
      const code = state === 'deleted' ? 0 : error?.code || FAILED_WITHOUT_CODE;
      noteDone(call, 'DEL', error ? `${why}: ${error.message}` : why, { code, id });
    }
  await printList(call, 'GoneList', report.map(withReply), () => render(report, titleOf));
  return call.signal.aborted || report.some(({ state }) => state === 'failed') ? 1 : 0;
}

const WORDS = { found: 'DEL', deleted: 'DEL', kept: 'keep', failed: 'stuck' } as const;

function render(report: readonly GoneAttachment[], titleOf: (id: AttachmentId) => string): string {
  if (report.length === 0) return 'no attachment outlived its namespace\n';
  return report
    .map(({ state, why, error, ...id }) => {
      const problem = error ? `; ${error.message}` : '';
      return `${WORDS[state].padEnd(5)} ${titleOf(id)}: ${why}${problem}\n`;
    })
    .join('');
}
