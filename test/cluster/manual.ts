// Which commands does the manual give for Kubernetes, and which of their words does the harness replace?

import { TOOL_VERSION } from '../../src/cli/command.ts';
import { blocksIn, sectionOf } from '../helpers/page.ts';

/** Where the commands are. */
export const MANUAL = { page: 'src/cli/install/README.md', section: 'Kubernetes' } as const;

/** Words of the manual that the harness replaces. Its own page says by what, and why. */
export const REPLACEABLE = {
  executables: 'dist/bin',
  archive: 'catena.tar',
  image: `localhost/catena:${TOOL_VERSION}`,
  build: 'podman build',
  release: '--kubernetes 1.30',
} as const;

/** What stands in their place. */
export type Replaced = Readonly<Partial<Record<keyof typeof REPLACEABLE, string>>>;

/**
 * A block of the section: commands, or the list.
 * @throws Error if the manual does not have it exactly once, or if a word to be replaced is not in it
 */
export function manual(name: string, replaced: Replaced = {}): string {
  const [found, second] = blocksIn(sectionOf(MANUAL.page, MANUAL.section)).filter(one => one.name === name);
  if (found === undefined || second !== undefined)
    throw new Error(`Cannot find one block "${name}" below "${MANUAL.section}" in ${MANUAL.page}`);
  let { text } = found;
  for (const [key, value] of Object.entries(replaced)) {
    const word = REPLACEABLE[key as keyof Replaced];
    if (!text.includes(word)) throw new Error(`Cannot replace "${word}" in the block "${name}": it has none`);
    text = text.replaceAll(word, () => value);
  }
  return text;
}

/** The arguments that execute a block in a directory. The first command that fails is the last. */
export function inShell(commands: string, dir: string): string[] {
  return ['sh', '-euc', `cd "$1"\n${commands}`, 'sh', dir];
}
