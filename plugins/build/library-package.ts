// What does an executable embed so that a new plugin's project can be installed without our package in a registry?
import fs from 'node:fs';
import path from 'node:path';
import manifest from '../../package.json' with { type: 'json' };
import { type ArchiveEntry, packArchive } from '../../src/files/archive.ts';

const ROOT = path.resolve(import.meta.dir, '../..');

/** The part of `files` in package.json that building a plugin needs. The rest is documentation. */
const SOURCES = ['package.json', 'LICENSE', 'src', 'plugins'] as const;
const BUILT = ['lib', 'types', 'schemas'] as const;

/** 2000-01-01: equal inputs produce an identical archive. */
const TIME = 946_684_800;

/**
 * Packs the npm package in the layout of `npm pack`.
 * @param builtDir holds `lib/`, `types/` and `schemas/`, and gets the archive
 * @returns the path of the archive
 */
export function packLibrary(builtDir: string): string {
  const entries = [
    ...SOURCES.flatMap(name => entriesOf(path.join(ROOT, name), `package/${name}`)),
    ...BUILT.flatMap(name => entriesOf(path.join(builtDir, name), `package/dist/${name}`)),
  ];
  const archive = path.join(builtDir, `${manifest.name}-${manifest.version}.tgz`);
  fs.writeFileSync(`${archive}.new`, packArchive(entries, TIME));
  fs.renameSync(`${archive}.new`, archive);
  return archive;
}

function entriesOf(file: string, name: string): ArchiveEntry[] {
  const stat = fs.statSync(file);
  if (!stat.isDirectory()) {
    return [{ name, mode: stat.mode & 0o100 ? 0o755 : 0o644, content: fs.readFileSync(file) }];
  }
  const names = fs.readdirSync(file).sort();
  return names.flatMap(one => entriesOf(path.join(file, one), `${name}/${one}`));
}
