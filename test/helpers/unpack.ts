// How do tests get Debian programs without installing them on the machine?

import fs from 'node:fs';
import path from 'node:path';
import { runOk, TEST_PATH } from './command.ts';
import { aptGet, updateLists } from './debian.ts';

const CACHE = path.resolve(import.meta.dir, '../../node_modules/.cache');

/** Where packages are unpacked, as if it were the root directory. */
export function unpackedAt(name: string): string {
  return path.join(CACHE, 'unpacked', name);
}

/** Library directories of unpacked packages; some packages still have theirs in `/lib`. */
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
 * Downloads packages, with all that they depend on beyond Debian's essential packages, and unpacks them unless an earlier run did:
 * what comes of it does not depend on what the machine has installed. Does nothing without root or apt-get.
 * @param root the target directory; it appears complete or not at all
 * @returns a line for the reader if it failed
 */
export async function unpackPackages(root: string, packages: readonly string[]): Promise<string | undefined> {
  if (fs.existsSync(root) || process.getuid?.() !== 0) return undefined;
  if (Bun.which('apt-get', { PATH: TEST_PATH }) === null) return undefined;
  process.stdout.write(`unpacking ${packages.join(' ')}\n`);
  fs.mkdirSync(path.dirname(root), { recursive: true });
  const work = fs.mkdtempSync(`${root}-`);
  try {
    const failure = await download(work, packages);
    if (failure !== undefined) return `Cannot download "${packages.join(' ')}": ${failure}`;
    fs.mkdirSync(`${work}/root`);
    for (const file of fs.readdirSync(`${work}/archives`).filter(name => name.endsWith('.deb'))) {
      await runOk(['dpkg-deb', '--extract', `${work}/archives/${file}`, `${work}/root`], {
        timeoutMs: 300_000,
      });
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

async function download(work: string, packages: readonly string[]): Promise<string | undefined> {
  fs.mkdirSync(`${work}/archives/partial`, { recursive: true });
  fs.writeFileSync(`${work}/status`, essentialOnly(fs.readFileSync('/var/lib/dpkg/status', 'utf8')));
  // One of several sources may be unreachable; what counts is whether the download works.
  await updateLists();
  const options = [
    ...['-o', `Dir::Cache::archives=${work}/archives`, '-o', `Dir::State::status=${work}/status`],
    // As root: the user that apt-get would switch to for the download may not write here.
    ...['-o', 'APT::Sandbox::User=root'],
  ];
  return aptGet(...options, 'install', '-y', '--download-only', '--no-install-recommends', ...packages);
}

/**
 * dpkg's status of a machine on which nothing is installed but the essential packages, which every Debian has, and what they need.
 * The C library is among it: programs must use that of the machine, which belongs to its loader.
 */
export function essentialOnly(status: string): string {
  const field = (stanza: string, name: string): string =>
    new RegExp(`^${name}: (.*)$`, 'm').exec(stanza)?.[1] ?? '';
  const names = (list: string): string[] => list.split(/[,|]/).map(one => one.trim().replace(/[ :(].*/, ''));
  const installed = status.split(/\n\n+/).filter(stanza => field(stanza, 'Status').endsWith(' installed'));
  const byName = new Map(
    installed.flatMap(stanza => names(field(stanza, 'Provides')).map(name => [name, stanza])),
  );
  for (const stanza of installed) byName.set(field(stanza, 'Package'), stanza);
  const kept = new Set(installed.filter(stanza => field(stanza, 'Essential') === 'yes'));
  // The loop also sees what it adds.
  for (const stanza of kept) {
    for (const need of `${field(stanza, 'Pre-Depends')},${field(stanza, 'Depends')}`.split(',')) {
      const found = names(need).find(name => byName.has(name));
      if (found !== undefined) kept.add(byName.get(found) ?? '');
    }
  }
  return `${[...kept].join('\n\n')}\n\n`;
}
