// What does `catena validate` do?
import { existsSync } from 'node:fs';
import { listNetworks } from '../../chain/config/load.ts';
import { absolutePath } from '../../files/read-file.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { printAnswer } from '../output/print.ts';
import { catalogOf } from '../plugin-catalog.ts';
import { installedRuntimes } from '../runtimes/libcni.ts';
import { confDirOf, runtimeOf } from '../target.ts';
import { styleOf, widthOf } from '../terminal/lines.ts';
import { NO_EXECUTABLES, openExecutables } from '../validate/executables.ts';
import { countFindings, type Finding, renderValidation } from '../validate/finding.ts';
import { validatePath } from '../validate/validate.ts';

/** Prints the findings; fails on errors, with `--strict` on warnings too. */
export async function run(call: CommandCall): Promise<number> {
  // The standard error of plugins that are asked for their versions is not shown.
  const { onPlugin: _, ...runtime } = runtimeOf(call);
  const executables = call.on('files-only') ? NO_EXECUTABLES : openExecutables(runtime, installedRuntimes());
  const report = { files: 0, findings: [] as Finding[] };
  for (const path of pathsOf(call)) {
    const { files, findings } = await validatePath(path, catalogOf(call), executables);
    report.files += files;
    report.findings.push(...findings);
  }
  const { error, warning } = countFindings(report);
  const valid = error + (call.on('strict') ? warning : 0) === 0;
  const { files, findings } = report;
  await printAnswer(call, 'Validation', { valid, files, errors: error, warnings: warning, findings }, () =>
    renderValidation(report, styleOf(call), widthOf(call)),
  );
  return valid ? 0 : 1;
}

/** A network of the configuration directory stands for its file, unless there is a file of that name. */
function pathsOf(call: CommandCall): string[] {
  if (call.positionals.length === 0)
    throw new UsageError('Cannot validate: name lists, directories of lists or networks');
  return call.positionals.map(given => {
    if (existsSync(absolutePath(given, call.cwd))) return given;
    return listNetworks(confDirOf(call)).networks.find(({ list }) => list.name === given)?.file ?? given;
  });
}
