// Which files does the project of a new plugin contain?

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import manifest from '../../../package.json' with { type: 'json' };
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { absolutePath } from '../../files/read-file.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { fillBlanks } from '../fill-blanks.ts';
import conflist from './files/conflist.txt' with { type: 'text' };
import gitignore from './files/gitignore.txt' with { type: 'text' };
import mainSource from './files/main.ts.txt' with { type: 'text' };
import packageJson from './files/package.json.txt' with { type: 'text' };
import pluginTest from './files/plugin.test.ts.txt' with { type: 'text' };
import pluginSource from './files/plugin.ts.txt' with { type: 'text' };
import readme from './files/README.md.txt' with { type: 'text' };
import schemaSource from './files/schema.ts.txt' with { type: 'text' };
import tsconfig from './files/tsconfig.json.txt' with { type: 'text' };
import { PACKED_LIBRARY } from './packed-library.ts';

/**
 * The dependency in package.json, and the files that it needs in the project. The compiled executable writes the package into the
 * project; from sources, the source directory is installed.
 */
function findLibrary() {
  const files = new Map<string, Uint8Array>();
  if (PACKED_LIBRARY === undefined)
    return { dependency: `file:${resolve(import.meta.dir, '../../..')}`, files };
  const name = `vendor/${manifest.name}-${manifest.version}.tgz`;
  return { dependency: `file:${name}`, files: files.set(name, readFileSync(PACKED_LIBRARY)) };
}

const MAX_NAME_LENGTH = 64;

/** Versions that the project depends on: the ones that we test with. */
const VERSIONS: Readonly<Record<string, string>> = { ...manifest.devDependencies, ...manifest.dependencies };

/**
 * Why a name cannot be that of a plugin and of its package; undefined if it can. It becomes the `type` in conflists, a file in a
 * directory of executables, and the `name` in package.json.
 */
export function findNameProblem(name: string): string | undefined {
  if (name.length > MAX_NAME_LENGTH) return `it is longer than ${MAX_NAME_LENGTH} characters`;
  if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(name)) {
    return 'it must be lower-case letters and digits, separated by single hyphens';
  }
  return name === 'catena' ? 'that is the name of the tool itself' : undefined;
}

/** Content of every file, by its path in the project. */
export function renderProject(
  name: string,
  library: ReturnType<typeof findLibrary>,
): ReadonlyMap<string, string | Uint8Array> {
  const files: Readonly<Record<string, string>> = {
    'package.json': packageJson,
    'tsconfig.json': tsconfig,
    '.gitignore': gitignore,
    'README.md': readme,
    'src/main.ts': mainSource,
    'src/plugin.ts': pluginSource,
    'src/schema.ts': schemaSource,
    'test/plugin.test.ts': pluginTest,
    [`${name}.conflist`]: conflist,
  };
  const values = { ...VERSIONS, name, 'catena-cni': library.dependency };
  const texts = Object.entries(files).map(([path, text]) => [path, fillBlanks(text, values)] as const);
  return new Map<string, string | Uint8Array>([...texts, ...library.files]);
}

/**
 * Writes files into a directory, which is created if missing.
 * @throws CniError 5 if it is not empty or cannot be written
 */
export function writeProject(dir: string, files: ReadonlyMap<string, string | Uint8Array>): void {
  const [found] = entriesOf(dir);
  if (found !== undefined) throw refusal(`make a project in "${dir}": it already contains "${found}"`);
  try {
    for (const [path, content] of files) {
      mkdirSync(dirname(join(dir, path)), { recursive: true });
      // Never overwrites a file that was written since the check.
      writeFileSync(join(dir, path), content, { flag: 'wx' });
    }
  } catch (cause) {
    throw refusal(`write to "${dir}": ${(cause as Error).message}`, cause);
  }
}

function refusal(what: string, cause?: unknown): CniError {
  return new CniError(ErrorCode.ioFailure, `Cannot ${what}`, { cause });
}

function entriesOf(dir: string): string[] {
  try {
    return readdirSync(dir).sort();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return [];
    throw refusal(`make a project in "${dir}": ${message}`, cause);
  }
}

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
