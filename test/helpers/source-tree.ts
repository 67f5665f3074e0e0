// Which source files exist, and what do they import? For the tests that enforce the structure.

import fs from 'node:fs';
import path from 'node:path';

/** The repository's root. */
export const ROOT = path.resolve(import.meta.dir, '../..');

/** One import: its specifier, and for our own files the path from the root without `.ts` or `.tsx`. */
export interface Import {
  readonly specifier: string;
  readonly target: string | undefined;
  readonly dynamic: boolean;
  /** It does not exist at run time. */
  readonly typeOnly: boolean;
}

/** One TypeScript file; `code` is its text with comments blanked, so that examples in comments do not count. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly code: string;
  readonly lines: number;
  readonly imports: readonly Import[];
}

/** Reads every `.ts` and `.tsx` file below the folders, sorted by path. */
export function readSources(...folders: string[]): SourceFile[] {
  return folders
    .flatMap(folder => listFiles(folder))
    .filter(file => /\.tsx?$/.test(file))
    .sort()
    .map(file => parseSource(file, fs.readFileSync(path.join(ROOT, file), 'utf8')));
}

/** Not ours to look at. Unpacked packages below `node_modules` have links that lead back to their own folder. */
const SKIPPED = ['node_modules', 'dist', '.git'];

/** Every file below a folder, as paths from the root; never packages, build output or git's own files. */
export function listFiles(folder: string): string[] {
  return fs.readdirSync(path.join(ROOT, folder), { withFileTypes: true }).flatMap(entry => {
    const inside = path.join(folder, entry.name);
    // In a second working tree, git's own is a file.
    if (SKIPPED.includes(entry.name)) return [];
    if (entry.isDirectory()) return listFiles(inside);
    return entry.isFile() ? [inside] : [];
  });
}

/** Creates a {@link SourceFile} from text; `file` is its path from the root. */
export function parseSource(file: string, text: string): SourceFile {
  const code = withoutComments(text);
  const found: Import[] = [];
  const add = (specifier: string | undefined, dynamic: boolean, typeOnly = false): void => {
    if (specifier !== undefined)
      found.push({ specifier, target: resolve(file, specifier), dynamic, typeOnly });
  };
  const statement = /^[ \t]*(?:import|export)\s+(type\s+)?(?:[\w$*{}\s,]+?\sfrom\s*)?(['"])([^'"\n]+)\2/gm;
  for (const match of code.matchAll(statement)) add(match[3], false, match[1] !== undefined);
  for (const match of code.matchAll(/\bimport\s*\(\s*(?:(['"])([^'"\n]+)\1)?/g)) add(match[2] ?? '', true);
  for (const match of code.matchAll(/\brequire\s*\(\s*(['"])([^'"\n]+)\1/g)) add(match[2], true);
  return { path: file, text, code, lines: text.trimEnd().split('\n').length, imports: found };
}

// Keeps strings, because they may contain "//", and keeps line breaks.
function withoutComments(text: string): string {
  const token =
    /(\/\*[\s\S]*?\*\/|\/\/.*)|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*(?=[\s).,;:\]])/g;
  return text.replace(token, (all, comment: string | undefined) => {
    return comment === undefined ? all : comment.replace(/[^\n]/g, ' ');
  });
}

function resolve(file: string, specifier: string): string | undefined {
  if (!specifier.startsWith('.')) return undefined;
  return path.join(path.dirname(file), specifier).replace(/\.tsx?$/, '');
}
