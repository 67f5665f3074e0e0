// What does `catena doctor` do?

import { cacheDirOf } from '../../chain/runtime.ts';
import { runDir } from '../../cni/directories.ts';
import { examine } from '../../doctor/examine.ts';
import type { Finding } from '../../doctor/finding.ts';
import { viewNode } from '../../doctor/node-view.ts';
import type { CommandCall } from '../command.ts';
import { confDirOf, runtimeOf } from '../target.ts';

/** Says what is wrong with this node and what mends it; fails when something is an error. */
export async function run(call: CommandCall): Promise<number> {
  const runtime = runtimeOf(call);
  const findings = examine(
    viewNode({
      confDir: confDirOf(call),
      pluginDirs: runtime.pluginDirs,
      cacheDir: cacheDirOf(runtime),
      stateDir: runtime.stateDir ?? '',
      runDir: runDir(call.env),
    }),
  );
  const shown = call.on('all') ? findings : findings.filter(({ severity }) => severity !== 'ok');
  if (call.on('json')) call.out(`${JSON.stringify({ findings }, null, 4)}\n`);
  else call.out(render(shown, findings.length - shown.length));
  return findings.some(({ severity }) => severity === 'error') ? 1 : 0;
}

function render(findings: readonly Finding[], fine: number): string {
  const lines = findings.flatMap(({ id, severity, found, mend }) => [
    `${severity.padEnd(8)} ${id}: ${found}`,
    ...(mend === undefined ? [] : [`         mend: ${mend}`]),
  ]);
  const rest = fine > 0 ? [`${fine} checks found nothing; --all shows them`] : [];
  return [...lines, ...rest, ''].join('\n');
}
