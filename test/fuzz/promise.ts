// What is promised of whatever comes in?
import { CniError } from '../../src/cni/errors.ts';
import { isObject } from '../../src/cni/json.ts';

/** What no line of ours throws on purpose. */
const BUGS = [TypeError, RangeError, ReferenceError, SyntaxError];

/** Longest text that is said about one input: an error is read by people, and logged. */
const MESSAGE_LIMIT = 20_000;

/**
 * A value, or an error in the terms of the protocol: with a code that a runtime understands, and words.
 * @param codes the ones that may be
 */
export function answersOrRefuses<T>(run: () => T, ...codes: readonly number[]): T | undefined {
  try {
    return run();
  } catch (error) {
    checkRefusal(error, codes);
    return undefined;
  }
}

/** The error of the protocol that something threw. @throws what it was instead */
export function checkRefusal(error: unknown, codes: readonly number[] = []): void {
  if (!(error instanceof CniError)) throw error;
  if (!Number.isInteger(error.code) || error.code < 0) throw new Error(`its error has code ${error.code}`);
  if (codes.length && !codes.includes(error.code)) {
    throw new Error(`its error has code ${error.code}, not one of ${codes.join(', ')}: ${error.message}`);
  }
  checkWords(error.message);
  if (error.details !== undefined && error.details.length > MESSAGE_LIMIT)
    throw new Error('its details have no end');
  for (let at: unknown = error.cause; at instanceof Error; at = at.cause) {
    // JSON.parse says what is wrong with a text by a SyntaxError.
    if (isBug(at) && !(at instanceof SyntaxError)) throw at;
  }
}

/** A value, or an error of its own words: never one that a line threw because it did not think of something. */
export function answersOrComplains<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch (error) {
    if (isBug(error)) throw error;
    checkWords((error as Error).message);
    return undefined;
  }
}

/** The error object of the specification, as a link or a runner prints it. */
export function checkErrorReply(text: string): void {
  const reply: unknown = JSON.parse(text);
  if (!isObject(reply)) throw new Error(`its error is no object: ${text.slice(0, 200)}`);
  const { code, msg } = reply;
  if (typeof code !== 'number' || !Number.isInteger(code) || code <= 0)
    throw new Error(`its error has code ${code}`);
  if (typeof msg !== 'string') throw new Error('its error has no message');
  checkWords(msg);
}

/** True for what only a mistake of ours throws. */
export function isBug(error: unknown): boolean {
  return !(error instanceof Error) || BUGS.some(kind => error instanceof kind);
}

function checkWords(text: string): void {
  if (text.trim() === '') throw new Error('its error says nothing');
  if (text.length > MESSAGE_LIMIT) throw new Error(`its error has ${text.length} characters`);
  const odd = /\[object Object\]|\bundefined is not\b|is not a function/.exec(text);
  if (odd) throw new Error(`its error says "${odd[0]}": ${text.slice(0, 300)}`);
}
