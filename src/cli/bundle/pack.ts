// How does a report become an archive that anyone can unpack?
import { type ArchiveEntry, packArchive } from '../../files/archive.ts';

/** A file of the report. */
export interface BundleFile {
  readonly name: string;
  /** Where its content comes from, human-readable. */
  readonly what: string;
  readonly text: string;
}

/** What is longer is cut: a report is read by people. */
const MAX_BYTES = 2 * 1024 * 1024;

/** The limit of the archive's format. */
const MAX_NAME_BYTES = 100;

/** Files below one directory, the first of which lists the others. */
export function packBundle(dir: string, files: readonly BundleFile[], note: string, time: Date): Uint8Array {
  const names = new Set<string>();
  const named = files.map(file => ({ ...file, name: uniqueName(dir, file.name, names) }));
  const listing = [note, '', ...named.map(({ name, what }) => `${name}: ${what}`), ''].join('\n');
  const entries = [{ name: `${dir}/CONTENTS.txt`, text: listing }, ...named];
  return packArchive(entries.map(toEntry), Math.floor(time.getTime() / 1000));
}

function toEntry({ name, text }: { readonly name: string; readonly text: string }): ArchiveEntry {
  const bytes = Buffer.from(text);
  const content =
    bytes.length <= MAX_BYTES
      ? bytes
      : Buffer.concat([bytes.subarray(0, MAX_BYTES), Buffer.from(`\n(cut off after ${MAX_BYTES} bytes)\n`)]);
  return { name, mode: 0o600, content };
}

function uniqueName(dir: string, given: string, taken: Set<string>): string {
  const plain = `${dir}/${given.replaceAll(/[^\w./-]/g, '_').replaceAll('..', '_')}`;
  for (let i = 1; ; i++) {
    const ending = i === 1 ? '' : `~${i}`;
    const name = `${plain.slice(0, MAX_NAME_BYTES - ending.length)}${ending}`;
    if (!taken.has(name)) {
      taken.add(name);
      return name;
    }
  }
}
