// What does `catena init --plugin` do?
import { absolutePath } from '../../files/read-file.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { findLibrary } from './library.ts';
import { findNameProblem, renderProject, writeProject } from './project.ts';

/** Creates a plugin project and prints the next steps. */
export async function run(call: CommandCall): Promise<number> {
  const [name = ''] = call.positionals;
  const problem = findNameProblem(name);
  if (problem !== undefined) throw new UsageError(`Cannot name a plugin ${JSON.stringify(name)}: ${problem}`);
  const dir = absolutePath(call.text('dir') ?? name);
  const files = renderProject(name, findLibrary());
  const isDry = call.on('dry-run');
  if (!isDry) writeProject(dir, files);
  call.out(
    [
      `${dir}:`,
      ...[...files.keys()].map(file => `  ${file}`),
      '',
      isDry ? 'would be written' : `Next: cd ${dir} && npm install && npm run build`,
      '',
    ].join('\n'),
  );
  return 0;
}
