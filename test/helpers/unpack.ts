// How do tests get Debian programs without installing them on the machine?

import fs from 'node:fs';
import path from 'node:path';
import { runOk, TEST_PATH } from './command.ts';
import { aptGet } from './debian.ts';

const CACHE = path.resolve(import.meta.dir, '../../node_modules/.cache');

/** Where packages are unpacked, as if it were the root directory. */
export function unpackedAt(name: string): string {
  return path.join(CACHE, name);
}

/** Library directories of unpacked packages; some are built for a machine on which `/lib` and `/usr/lib` are two. */
export function libraryDirs(root: string): string[] {
  return ['usr/lib', 'lib'].flatMap(dir => {
    const lib = path.join(root, dir);
    if (!fs.existsSync(lib)) return [];
    return fs
      .readdirSync(lib)
      .filter(name => name.endsWith('-linux-gnu'))
      .map(name => path.join(lib, name));
  });
}

/**
 * Downloads packages, with dependencies that the machine lacks, and unpacks them unless an earlier run did. Does nothing without
 * root or apt-get.
 * @param root the target directory; it appears complete or not at all
 * @param options `again`: also packages that are already installed
 * @returns a line for the reader if it failed
 */
export async function unpackPackages(
  root: string,
  packages: readonly string[],
  options: { readonly again?: boolean } = {},
): Promise<string | undefined> {
  if (fs.existsSync(root) || process.getuid?.() !== 0) return undefined;
  if (Bun.which('apt-get', { PATH: TEST_PATH }) === null) return undefined;
  process.stdout.write(`unpacking ${packages.join(' ')}\n`);
  fs.mkdirSync(path.dirname(root), { recursive: true });
  const work = fs.mkdtempSync(`${root}-`);
  try {
    const failure = await download(`${work}/archives`, packages, options.again ? ['--reinstall'] : []);
    if (failure !== undefined) return `Cannot download "${packages.join(' ')}": ${failure}`;
    fs.mkdirSync(`${work}/root`);
    for (const file of fs.readdirSync(`${work}/archives`).filter(name => name.endsWith('.deb'))) {
      await runOk(['dpkg-deb', '--extract', `${work}/archives/${file}`, `${work}/root`]);
    }
    fs.renameSync(`${work}/root`, root);
    return undefined;
  } catch (error) {
    // A concurrent run may have finished first.
    return fs.existsSync(root) ? undefined : `Cannot unpack "${packages.join(' ')}": ${error}`;
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
}

async function download(
  archives: string,
  packages: readonly string[],
  more: readonly string[],
): Promise<string | undefined> {
  fs.mkdirSync(`${archives}/partial`, { recursive: true });
  // One of several sources may be unreachable; what counts is whether the download works.
  await aptGet('update');
  // As root: the user that apt-get would switch to for the download may not write here.
  const options = ['-o', `Dir::Cache::archives=${archives}`, '-o', 'APT::Sandbox::User=root'];
  const install = ['install', '-y', '--download-only', '--no-install-recommends', ...more];
  return aptGet(...options, ...install, ...packages);
}
