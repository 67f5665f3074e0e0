// What does `catena validate` do?
import { NO_EXECUTABLES, openExecutables } from '../../validate/executables.ts';
import { countFindings, renderReport } from '../../validate/finding.ts';
import { validatePath } from '../../validate/validate.ts';
import type { CommandCall } from '../command.ts';
import { runtimeOf } from '../target.ts';

/** Prints the findings; fails on errors, with `--strict` on warnings too. */
export async function run(call: CommandCall): Promise<number> {
  const [path = ''] = call.positionals;
  // The standard error of plugins that are asked for their versions is not shown.
  const { onPlugin: _, ...runtime } = runtimeOf(call);
  const executables = call.on('files-only') ? NO_EXECUTABLES : openExecutables(runtime);
  const report = await validatePath(path, call.plugins, executables);
  const { error, warning } = countFindings(report);
  const valid = error + (call.on('strict') ? warning : 0) === 0;
  if (call.on('json')) {
    const { files, findings } = report;
    call.out(`${JSON.stringify({ valid, files, errors: error, warnings: warning, findings }, null, 2)}\n`);
  } else call.out(renderReport(report));
  return valid ? 0 : 1;
}
