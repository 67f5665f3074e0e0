// What does `catena doctor` do?

import { cacheDirOf, type Runtime } from '../../chain/run/runtime.ts';
import { runDir } from '../../cni/directories.ts';
import { toCniError } from '../../cni/errors.ts';
import { loadAbouts } from '../../cni/network-plugins.ts';
import { examineAttachments } from '../../doctor/checks/attachments.ts';
import { viewDaemon } from '../../doctor/daemon-view.ts';
import { examine, worstFirst } from '../../doctor/examine.ts';
import type { Finding, NodeView } from '../../doctor/finding.ts';
import { type Places, viewNode } from '../../doctor/node-view.ts';
import { routedPods } from '../../doctor/pods.ts';
import { exitCodeOf, judge } from '../../doctor/verdict.ts';
import { installedRuntimes } from '../../runtimes/libcni.ts';
import type { CommandCall } from '../command.ts';
import { renderDiagnosis } from '../doctor-render.ts';
import { factsFor, readNodeFor } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';
import { confDirOf, runtimeOf, segmentsOf } from '../target.ts';
import { styleOf } from '../terminal/colour.ts';
import { during } from '../terminal/progress.ts';

/** Diagnoses this node and suggests fixes. Exit codes: {@link exitCodeOf}. */
export async function run(call: CommandCall): Promise<number> {
  const runtime = runtimeOf(call);
  const view = tryToView({
    facts: factsFor(call),
    confDir: confDirOf(call),
    pluginDirs: runtime.pluginDirs,
    cacheDir: cacheDirOf(runtime),
    stateDir: runtime.stateDir ?? '',
    runDir: runDir(call.env),
    daemon: await viewDaemon(runDir(call.env)),
    findAbout: await loadAbouts(call.plugins.find, call.plugins.types),
    ownNames: call.plugins.types,
    installedRuntimes: installedRuntimes(),
  });
  const findings = 'severity' in view ? [view] : await examineAll(call, await withPods(call, view), runtime);
  const verdict = judge(findings, 'user' in view && view.user?.id !== 0);
  await printAnswer(
    call,
    'Diagnosis',
    { verdict, findings },
    { text: () => renderDiagnosis(findings, verdict, { ...styleOf(call), all: call.on('all') }) },
  );
  return exitCodeOf(verdict);
}

async function examineAll(call: CommandCall, node: NodeView, runtime: Runtime): Promise<Finding[]> {
  const checked = await during(call, 'doctor', 'CHECK of every attachment', () =>
    checkAll(call, node, runtime),
  );
  return worstFirst([...examine(node), ...checked]);
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
    const pods = routedPods(await readNodeFor(call, node), node);
    return pods === undefined ? node : { ...node, pods };
  } catch {
    // Records that cannot be listed are findings of other checks.
    return node;
  }
}

async function checkAll(call: CommandCall, node: NodeView, runtime: Runtime): Promise<readonly Finding[]> {
  try {
    return await examineAttachments(node, runtime, () => segmentsOf(call));
  } catch (error) {
    const found = `cannot run this check: ${toCniError(error).message}`;
    return [{ id: 'attachments', severity: 'warning', found }];
  }
}
