// How does a verb continue after a failed step and still report it?
import { CniError, describeError, toCniError } from '../cni/errors.ts';
import type { Done } from './define.ts';

/**
 * Runs every step in order, even after one failed, as DEL and GC must.
 * @throws CniError with the code of the first failure and the messages of all
 */
export async function tryAll(steps: readonly (() => Done)[]): Promise<void> {
  const problems: unknown[] = [];
  for (const step of steps) {
    try {
      await step();
    } catch (thrown) {
      problems.push(thrown);
    }
  }
  throwAll(problems);
}

/** Throws several errors as one; does nothing if there are none. @throws CniError as {@link tryAll} */
export function throwAll(problems: readonly unknown[]): void {
  if (problems.length === 0) return;
  const first = toCniError(problems[0]);
  if (problems.length === 1) throw first;
  throw new CniError(first.code, problems.map(describeError).join('; '), {
    cause: new AggregateError(problems),
  });
}
