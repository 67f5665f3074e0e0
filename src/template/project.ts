// Which files does the project of a new plugin hold?
import manifest from '../../package.json' with { type: 'json' };
import conflist from './files/conflist.txt' with { type: 'text' };
import gitignore from './files/gitignore.txt' with { type: 'text' };
import mainSource from './files/main.ts.txt' with { type: 'text' };
import packageJson from './files/package.json.txt' with { type: 'text' };
import pluginTest from './files/plugin.test.ts.txt' with { type: 'text' };
import pluginSource from './files/plugin.ts.txt' with { type: 'text' };
import readme from './files/README.md.txt' with { type: 'text' };
import tsconfig from './files/tsconfig.json.txt' with { type: 'text' };

const MAX_NAME_LENGTH = 64;

/** Versions that the project asks for: ours, and what we are tested with. */
const VERSIONS: Readonly<Record<string, string>> = {
  ...manifest.devDependencies,
  ...manifest.dependencies,
  'catena-cni': `^${manifest.version}`,
};

/**
 * What keeps a name from being that of a plugin and of its package, or undefined. It becomes the `type` in conflists,
 * a file in a directory of executables, and the `name` in package.json.
 */
export function findNameProblem(name: string): string | undefined {
  if (name.length > MAX_NAME_LENGTH) return `it is longer than ${MAX_NAME_LENGTH} characters`;
  if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(name)) {
    return 'it must be lower-case letters and digits, with single hyphens between';
  }
  return name === 'catena' ? 'that is the tool itself' : undefined;
}

/** Text of every file by its path in the project. */
export function renderProject(name: string): ReadonlyMap<string, string> {
  const files: Readonly<Record<string, string>> = {
    'package.json': packageJson,
    'tsconfig.json': tsconfig,
    '.gitignore': gitignore,
    'README.md': readme,
    'src/main.ts': mainSource,
    'src/plugin.ts': pluginSource,
    'test/plugin.test.ts': pluginTest,
    [`${name}.conflist`]: conflist,
  };
  return new Map(Object.entries(files).map(([path, text]) => [path, fill(text, { ...VERSIONS, name })]));
}

function fill(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/\{\{([^}]+)\}\}/g, (blank, key: string) => values[key] ?? blank);
}
