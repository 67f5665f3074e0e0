// What does `catena doctor` do?
import { networkStatus } from '../../chain/run/run.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { toCniError } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { loadAbouts } from '../../cni/plugin-about.ts';
import { type Colour, count, oneLine, painter, type Style } from '../../lab/words.ts';
import { checkAttachments } from '../../node/doctor/checks/state.ts';
import {
  type DoctorVerdict,
  exitCodeOf,
  type Finding,
  groupBy,
  judge,
  type NodeView,
  viewDaemon,
} from '../../node/doctor/finding.ts';
import { findProblems, type Places, routedPods, viewNode } from '../../node/doctor/node-view.ts';
import { titleOf } from '../../node/words.ts';
import { timeLimit } from '../../wait.ts';
import { CHECK_BUDGET_MS } from '../../watch/examine.ts';
import type { CommandCall } from '../command.ts';
import { factsFor, placesFor, readNodeFor } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';
import { installedRuntimes } from '../runtimes/libcni.ts';
import { runtimeOf, segmentsOf } from '../target.ts';
import { styleOf } from '../terminal/lines.ts';
import { during } from '../terminal/progress.ts';

/** Diagnoses this node and suggests fixes. Exit codes: {@link exitCodeOf}. */
export async function run(call: CommandCall): Promise<number> {
  const runtime = runtimeOf(call);
  const places = placesFor(call);
  const view = tryToView({
    ...places,
    facts: factsFor(call),
    daemon: await viewDaemon(places.runDir),
    findAbout: await loadAbouts(call.plugins.find, call.plugins.types),
    ownNames: call.plugins.types,
    installedRuntimes: installedRuntimes(),
    askStatus: statusAsker(call, runtime),
  });
  const findings = 'severity' in view ? [view] : await examineAll(call, await withPods(call, view), runtime);
  const verdict = judge(findings, 'user' in view && view.user?.id !== 0);
  await printAnswer(call, 'Diagnosis', { verdict, findings }, () =>
    renderDiagnosis(findings, verdict, { ...styleOf(call), all: call.on('all') }),
  );
  return exitCodeOf(verdict);
}

/** Asks several networks at once; all answers together take no longer than all CHECKs. */
function statusAsker(call: CommandCall, runtime: Runtime): NonNullable<NodeView['askStatus']> {
  const { onPlugin: _, onWarning: __, ...quiet } = runtime;
  let limit: AbortSignal | undefined;
  return async list => {
    limit ??= timeLimit(CHECK_BUDGET_MS);
    const signal = AbortSignal.any([call.signal, limit]);
    try {
      await networkStatus(list, {
        ...quiet,
        signal,
        segments: segmentsOf(call),
        deadlineMs: CHECK_BUDGET_MS,
      });
      return undefined;
    } catch (error) {
      return toCniError(error);
    }
  };
}

async function examineAll(call: CommandCall, node: NodeView, runtime: Runtime): Promise<Finding[]> {
  return await findProblems(node, () =>
    during(call, 'doctor', 'CHECK of every attachment', () =>
      checkAttachments(node, runtime, () => segmentsOf(call)),
    ),
  );
}

/** @returns a finding where nothing of the kernel can be read, as without executable memory */
function tryToView(places: Places): NodeView | Finding {
  try {
    return viewNode(places);
  } catch (error) {
    const found = `cannot look at the node: ${toCniError(error).message}`;
    return { id: 'kernel.unreadable', severity: 'error', found };
  }
}

async function withPods(call: CommandCall, node: NodeView): Promise<NodeView> {
  try {
    const model = await readNodeFor(call, node);
    const titles = new Map(model.attachments.map(one => [one.containerId, titleOf(one)]));
    return { ...node, titles, ...defined({ pods: routedPods(model, node) }) };
  } catch {
    // Records that cannot be listed are findings of other checks.
    return node;
  }
}

/** Of findings that differ only in the attachment, this many are shown. */
const MOST_ALIKE = 10;

const WORDS: Readonly<Record<Finding['severity'], readonly [word: string, colour: Colour]>> = {
  error: ['error', 'red'],
  warning: ['warning', 'yellow'],
  unexamined: ['unseen', 'yellow'],
  info: ['info', 'dim'],
  ok: ['ok', 'green'],
};
const WORD_WIDTH = 8;

/**
 * Findings in their order, a fix once for all that it fixes, then the verdict.
 * @param all also shows checks that found nothing, and every one of many similar findings
 */
export function renderDiagnosis(
  findings: readonly Finding[],
  { state, summary }: DoctorVerdict,
  { colour, all }: Style & { readonly all: boolean },
): string {
  const paint = painter({ colour });
  const fine = findings.filter(({ severity }) => severity === 'ok');
  const shown = all ? findings : findings.filter(({ severity }) => severity !== 'ok');
  // Findings of one check with the same fix stand together.
  const keyOf = ({ id, severity, found, mend }: Finding) => `${severity} ${id} ${mend ?? found}`;
  const lines = [...groupBy(shown, keyOf).values()].flatMap(group => {
    const [{ mend } = {}] = group;
    const most = all ? group.length : MOST_ALIKE;
    const rest = group.length - most;
    return [
      ...group.slice(0, most).map(({ id, severity, found }) => {
        const [word, hue] = WORDS[severity];
        return `${paint(hue, word)}${' '.repeat(WORD_WIDTH - word.length)} ${id}: ${oneLine(found)}`;
      }),
      ...(rest > 0 ? [`${GAP}and ${rest} more like these; --all shows them`] : []),
      ...(mend === undefined ? [] : [`${GAP}fix: ${oneLine(mend)}`]),
    ];
  });
  const them = fine.length === 1 ? 'it' : 'them';
  const note = `${count(fine.length, 'check')} found no problem; --all shows ${them}`;
  const hidden = fine.length > 0 && !all ? [note] : [];
  const verdict = paint(state === 'healthy' ? 'green' : state === 'blind' ? 'yellow' : 'red', summary);
  return [...lines, ...hidden, verdict, ''].join('\n');
}

const GAP = ' '.repeat(WORD_WIDTH + 1);
