// What is promised for every input?
import { CniError } from '../../src/cni/errors.ts';
import { isObject } from '../../src/cni/json.ts';

/** Errors that our code never throws on purpose. */
const BUGS = [TypeError, RangeError, ReferenceError, SyntaxError];

/** Longest message about one input: errors are read by people, and logged. */
const MESSAGE_LIMIT = 20_000;

/**
 * Expects a value, or an error of the protocol: with a code that a runtime understands, and a message.
 * @param codes the allowed codes
 */
export function answersOrRefuses<T>(run: () => T, ...codes: readonly number[]): T | undefined {
  try {
    return run();
  } catch (error) {
    checkRefusal(error, codes);
    return undefined;
  }
}

/** Checks that what was thrown is an error of the protocol. @throws what it was instead */
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
    // JSON.parse reports invalid text by a SyntaxError.
    if (isBug(at) && !(at instanceof SyntaxError)) throw at;
  }
}

/** Expects a value, or a deliberate error: never one caused by an unforeseen case. */
export function answersOrComplains<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch (error) {
    if (isBug(error)) throw error;
    checkWords((error as Error).message);
    return undefined;
  }
}

/** Checks an error object of the specification, as a plugin or a runner prints it. */
export function checkErrorReply(text: string): void {
  const reply: unknown = JSON.parse(text);
  if (!isObject(reply)) throw new Error(`its error is no object: ${text.slice(0, 200)}`);
  const { code, msg } = reply;
  if (typeof code !== 'number' || !Number.isInteger(code) || code <= 0)
    throw new Error(`its error has code ${code}`);
  if (typeof msg !== 'string') throw new Error('its error has no message');
  checkWords(msg);
}

/** True for errors that only a bug of ours throws. */
export function isBug(error: unknown): boolean {
  return !(error instanceof Error) || BUGS.some(kind => error instanceof kind);
}

function checkWords(text: string): void {
  if (text.trim() === '') throw new Error('its error says nothing');
  if (text.length > MESSAGE_LIMIT) throw new Error(`its error has ${text.length} characters`);
  const odd = /\[object Object\]|\bundefined is not\b|is not a function/.exec(text);
  if (odd) throw new Error(`its error says "${odd[0]}": ${text.slice(0, 300)}`);
}
