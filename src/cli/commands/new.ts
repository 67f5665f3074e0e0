// What does `catena new` do?
import { resolve } from 'node:path';
import { findNameProblem, renderProject } from '../../template/project.ts';
import { writeProject } from '../../template/write.ts';
import { type CommandCall, UsageError } from '../command.ts';

/** Writes the project of a plugin and says what to do next. */
export async function run(call: CommandCall): Promise<number> {
  const [name = ''] = call.positionals;
  const problem = findNameProblem(name);
  if (problem !== undefined) throw new UsageError(`Cannot name a plugin ${JSON.stringify(name)}: ${problem}`);
  const dir = resolve(call.text('dir') ?? name);
  const files = renderProject(name);
  writeProject(dir, files);
  call.out(
    [
      `${dir}:`,
      ...[...files.keys()].map(file => `  ${file}`),
      '',
      `Next: cd ${dir} && npm install && npm run build`,
      '',
    ].join('\n'),
  );
  return 0;
}
