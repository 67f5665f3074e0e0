// How does a verb go through its steps: what is intact is left, a failed step is reported, others follow it?

import { CniError, describeError, ErrorCode, invalidConfig, toCniError } from '../cni/errors.ts';
import type { Result } from '../cni/result.ts';
import type { Call, Done } from './define.ts';

/** The result of the plugins before. @param otherwise the error without one @throws CniError 7 */
export function requireResult({ prevResult }: Pick<Call, 'prevResult'>, otherwise: string): Result {
  if (prevResult) return prevResult;
  throw invalidConfig(otherwise);
}

/**
 * Compares one thing that ADD made with its current state.
 * @param what names it for an operator: `MTU of "eth0"`
 * @throws Error naming the expected and the found value; undefined is shown as nothing
 */
export function confirm(what: string, expected: unknown, found: unknown): void {
  const [wanted, actual] = [render(expected), render(found)];
  if (wanted !== actual) throw new Error(`Cannot confirm ${what}: expected ${wanted}, found ${actual}`);
}

/** Differences that one message lists; one missing object often means that all are missing. */
const MOST_LISTED = 5;

/**
 * Reports differences that were found elsewhere.
 * @param what names all of them for an operator: `port mappings`
 * @throws Error with the first few of them, if there are any
 */
export function confirmAll(what: string, problems: readonly string[]): void {
  if (problems.length === 0) return;
  const more = problems.length > MOST_LISTED ? ` and ${problems.length - MOST_LISTED} more` : '';
  throw new Error(`Cannot confirm ${what}: ${problems.slice(0, MOST_LISTED).join(', ')}${more}`);
}

function render(value: unknown): string {
  return value === undefined ? 'nothing' : JSON.stringify(value);
}

/** Puts something back if the check finds that it is missing or wrong. */
export function mend(check: () => void, putBack: () => void): void {
  try {
    check();
  } catch {
    // Whatever differs: CHECK reports it if it still does afterwards.
    putBack();
  }
}

/** Runs a step whose failure keeps nothing else from being done. @returns what it failed with, human-readable */
export function problemsOf(step: () => void): string[] {
  try {
    step();
    return [];
  } catch (thrown) {
    return [describeError(thrown)];
  }
}

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

/**
 * Runs what STATUS looks for.
 * @param examine throws what would make ADD fail, and changes nothing
 * @param what could not be done then
 * @throws CniError 50
 */
export async function requireReadiness(examine: () => Done, what = 'attach containers'): Promise<void> {
  try {
    await examine();
  } catch (cause) {
    throw new CniError(ErrorCode.unavailable, `Cannot ${what}: ${describeError(cause)}`, { cause });
  }
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
