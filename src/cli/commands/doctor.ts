// What does `catena doctor` do?

import { cacheDirOf } from '../../chain/run/runtime.ts';
import { runDir, runnerJournals } from '../../cni/directories.ts';
import { toCniError } from '../../cni/errors.ts';
import { loadAbouts } from '../../cni/network-plugins.ts';
import { examineAttachments } from '../../doctor/checks/attachments.ts';
import { viewDaemon } from '../../doctor/daemon-view.ts';
import { examine, worstFirst } from '../../doctor/examine.ts';
import type { Finding } from '../../doctor/finding.ts';
import { viewNode } from '../../doctor/node-view.ts';
import type { CommandCall } from '../command.ts';
import { confDirOf, runtimeOf } from '../target.ts';

/** Diagnoses this node and suggests fixes; fails if it finds an error. */
export async function run(call: CommandCall): Promise<number> {
  const runtime = runtimeOf(call);
  const { stateDir = '' } = runtime;
  const node = viewNode({
    confDir: confDirOf(call),
    pluginDirs: runtime.pluginDirs,
    cacheDir: cacheDirOf(runtime),
    stateDir,
    runDir: runDir(call.env),
    daemon: await viewDaemon(runDir(call.env)),
    findAbout: await loadAbouts(call.plugins.find, call.plugins.types),
    ownNames: call.plugins.types,
  });
  const { delegates } = runnerJournals(stateDir);
  const findings = worstFirst([
    ...examine(node),
    ...(await examineAttachments(node, [delegates], runtime).catch((error: unknown) => [
      {
        id: 'attachments',
        severity: 'warning' as const,
        found: `cannot run this check: ${toCniError(error).message}`,
      },
    ])),
  ]);
  const shown = call.on('all') ? findings : findings.filter(({ severity }) => severity !== 'ok');
  if (call.on('json')) call.out(`${JSON.stringify({ findings }, null, 4)}\n`);
  else call.out(render(shown, findings.length - shown.length));
  return findings.some(({ severity }) => severity === 'error') ? 1 : 0;
}

function render(findings: readonly Finding[], fine: number): string {
  const lines = findings.flatMap(({ id, severity, found, mend }) => [
    `${severity.padEnd(8)} ${id}: ${found}`,
    ...(mend === undefined ? [] : [`         fix: ${mend}`]),
  ]);
  const rest = fine > 0 ? [`${fine} checks found no problem; --all shows them`] : [];
  return [...lines, ...rest, ''].join('\n');
}
