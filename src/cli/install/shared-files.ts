// How are the many files for shells and man shown in a few lines?
import { dirname } from 'node:path';
import { count } from '../../lab/words.ts';

/** What happens to a file. */
interface SharedStep {
  readonly path: string;
  readonly action: string;
  readonly why?: string;
}

/** A line for all files to which the same happens for the same reason; a file with a reason of its own has its path. */
export function renderShared(steps: readonly SharedStep[]): string[] {
  const groups = new Map<string, SharedStep[]>();
  for (const step of steps) {
    const key = `${step.action}\n${step.why ?? ''}`;
    groups.set(key, [...(groups.get(key) ?? []), step]);
  }
  return [...groups.values()].flatMap(group => {
    const [first] = group;
    if (first === undefined) return [];
    const { action, why, path } = first;
    const what =
      group.length === 1
        ? path
        : `${count(group.length, 'file')} below ${commonDir(group.map(one => one.path))}: shell completion and the manual`;
    return [`${action.padEnd(7)}  ${what}${why ? `: ${why}` : ''}`];
  });
}

function commonDir(paths: readonly string[]): string {
  let dir = dirname(paths[0] ?? '/');
  while (dir !== '/' && !paths.every(path => path.startsWith(`${dir}/`))) dir = dirname(dir);
  return dir;
}
