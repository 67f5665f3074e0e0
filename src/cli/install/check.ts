// Will container runtimes really use the configuration that was installed?

import type { Runtime } from '../../chain/run/runtime.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import type { Configured } from '../runtimes/configured.ts';
import { installedAs } from '../runtimes/libcni.ts';
import { type Candidate, candidateOf, choose, type RuntimeName, readCandidates } from '../runtimes/rules.ts';

/** Runtimes that use one file for every pod; the others are given a name each time. */
const BY_ORDER: readonly RuntimeName[] = ['containerd', 'CRI-O'];

/** What one runtime does with the directory. */
export type Pick = AnswerOf<'Installation'>['picks'][number];

/** Where runtimes look for configurations. */
interface Lookup {
  readonly confDir: string;
  /** The settings in their own configurations. */
  readonly configured: readonly Configured[];
  /** Where the plugins are; without it only the files are read. */
  readonly runtime?: Runtime;
}

/**
 * Reads the directory as each runtime does.
 * @param planned text of a file that does not exist yet
 */
export async function checkPick(
  { confDir, configured, runtime }: Lookup,
  name: string,
  planned?: string,
): Promise<Pick[]> {
  const there = (await readCandidates(confDir, runtime)).filter(
    file => planned === undefined || file.name !== name,
  );
  const files: Candidate[] = planned === undefined ? there : [...there, candidateOf(name, planned)];
  files.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  return BY_ORDER.map(one => {
    const {
      files: taken,
      verdicts,
      problem,
    } = choose(one, files, { ...configured.find(own => own.runtime === one), ...installedAs(one) });
    const why = verdicts.find(({ file }) => file === name)?.why ?? 'there is no such file';
    const isTaken = taken.includes(name) && problem === undefined;
    const instead = isTaken || !taken[0] || taken[0] === name ? '' : `"${taken[0]}" is used: `;
    return { runtime: one, taken: isTaken, why: `${instead}${problem ?? why}` };
  });
}
