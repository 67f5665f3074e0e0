// What does `catena validate` do?
import { existsSync } from 'node:fs';
import { listNetworks } from '../../chain/config/load.ts';
import { didYouMean } from '../../cni/json.ts';
import type { PluginCatalog } from '../../cni/plugin-about.ts';
import { absolutePath } from '../../files/read-file.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { withForeign } from '../foreign/catalog.ts';
import { printData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';
import { installedRuntimes } from '../runtimes/libcni.ts';
import { confDirOf, pluginDirsOf, runtimeOf } from '../target.ts';
import { styleOf, widthOf } from '../terminal/lines.ts';
import { NO_EXECUTABLES, openExecutables } from '../validate/executables.ts';
import { countFindings, type Finding, renderValidation } from '../validate/finding.ts';
import { validatePath } from '../validate/validate.ts';

/** Prints the findings, or a schema; fails on errors, with `--strict` on warnings too. */
export async function run(call: CommandCall): Promise<number> {
  const name = call.text('schema');
  if (name !== undefined) return showSchema(call, name);
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

/** Ours, and those of others that have a schema beside their executable. Warns of a schema that cannot be used. */
export function catalogOf(call: CommandCall): PluginCatalog {
  return withForeign(call.plugins, pluginDirsOf(call), problem => call.warn(problem));
}

/** Prints the schema of lists, of a plugin's configuration, or of what commands print. */
async function showSchema(call: CommandCall, name: string): Promise<number> {
  const schemas = { ...(await catalogOf(call).schemas()), ...(await call.plugins.answerSchemas?.()) };
  const schema = Object.hasOwn(schemas, name) ? schemas[name] : undefined;
  if (schema === undefined) {
    const names = Object.keys(schemas);
    const near = didYouMean(name, names) || `; there are ${names.join(', ')}`;
    throw new UsageError(`Cannot show the schema of "${name}": no such schema${near}`);
  }
  await printData(call, schema);
  return 0;
}
