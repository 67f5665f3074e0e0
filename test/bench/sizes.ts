// How large is what is installed: the executables, the npm package and the library?
import { existsSync, globSync, lstatSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { type Row, row } from './row.ts';
import { REFERENCE_NAMES } from './start.ts';
import { noteUnmeasured } from './unmeasured.ts';

const MIB = 1024 * 1024;

/** Lines of sizes in MiB; the reference's column has its executables of the same names. */
export function sizeRows(): Row[] {
  const reference = bytesOf(REFERENCE_NAMES.map(name => join(REFERENCE_BIN_DIR, name)));
  return [
    row('size: executables, all names', 'MiB', reference / MIB, bytesOf(below('dist/bin')) / MIB),
    ...ownRow('size: archive of a release', globSync('dist/release/*-linux-x64.tar.gz', { cwd: ROOT })),
    ...ownRow('size: npm package', globSync('dist/catena-cni-*.tgz', { cwd: ROOT })),
    ...ownRow('size: library for Node', below('dist/lib')),
  ];
}

/** A line without a counterpart; noted if nothing was built. */
function ownRow(what: string, files: readonly string[]): Row[] {
  if (files.length) return [row(what, 'MiB', Number.NaN, bytesOf(files) / MIB)];
  noteUnmeasured(what, new Error('it was not built (npm run build, npm run package)'));
  return [];
}

function below(dir: string): string[] {
  if (!existsSync(join(ROOT, dir))) return [];
  return globSync(`${dir}/**`, { cwd: ROOT }).filter(file => lstatSync(join(ROOT, file)).isFile());
}

/** Bytes on disk: names that are links to one file count once. */
function bytesOf(files: readonly string[]): number {
  const sizes = new Map(
    files.map(file => {
      const { ino, size } = statSync(join(file.startsWith('/') ? '/' : ROOT, file));
      return [ino, size];
    }),
  );
  return [...sizes.values()].reduce((sum, size) => sum + size, 0);
}
