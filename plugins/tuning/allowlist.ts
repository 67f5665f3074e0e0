// Which sysctls does the node's administrator allow a configuration to set?
import { readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';

/** One regular expression per line; the path is the reference's. */
const ALLOWLIST = '/etc/cni/tuning/allowlist.conf';

interface AllowRule {
  readonly text: string;
  readonly pattern: RegExp;
}

/**
 * The rules of the file, or undefined if there is no file and everything is allowed.
 * @throws Error when the file cannot be read or a line is not a regular expression
 */
export function readAllowlist(path = ALLOWLIST): AllowRule[] | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes((cause as { code?: string }).code ?? '')) return undefined;
    const state = `${(cause as Error).message}; no sysctl is allowed until "${path}" is readable or removed`;
    throw new Error(`Cannot read the list of allowed sysctls: ${state}`, { cause });
  }
  return parseAllowlist(text, path);
}

/** Lines are trimmed and empty ones skipped; there are no comments. An expression may match any part of a name. */
export function parseAllowlist(text: string, path = ALLOWLIST): AllowRule[] {
  const lines = text.split('\n').map((line, i) => ({ text: line.trim(), number: i + 1 }));
  return lines
    .filter(line => line.text !== '')
    .map(line => {
      try {
        return { text: line.text, pattern: parseRe2(line.text) };
      } catch (cause) {
        const state = `line ${line.number} is not a valid regular expression: ${line.text} (${(cause as Error).message})`;
        throw new Error(`Cannot use "${path}": ${state}; no sysctl is allowed until it is corrected`, {
          cause,
        });
      }
    });
}

/**
 * The sysctls, each with those of its paths that the rules allow. A rule has to match the name as configured, which is all that
 * the reference checks, and also the parameter that this name resolves to: with `net.ipv4.conf/all/forwarding` a rule for names
 * directly below `net.ipv4` would allow everything below it. Names keep the placeholder, as rules do.
 * @throws CniError 7 naming the sysctl and the rules
 */
export function refuseUnlisted(
  sysctls: readonly Sysctl[],
  rules: readonly AllowRule[] | undefined,
): readonly Sysctl[] {
  if (rules === undefined) return sysctls;
  const isAllowed = (name: string) => rules.some(rule => rule.pattern.test(name));
  return sysctls.map(sysctl => {
    if (!isAllowed(sysctl.key)) throw unlisted(sysctl.key, rules);
    const meant = readSysctlKey(sysctl.key, PLACEHOLDER);
    const [first, ...others] = sysctl.paths.filter((path, i) => namesOf(meant[i] ?? path).some(isAllowed));
    if (first === undefined) throw unlisted(`${sysctl.key}", which is "${namesOf(meant[0])[0]}`, rules);
    return { ...sysctl, paths: [first, ...others] };
  });
}

function unlisted(name: string, rules: readonly AllowRule[]): CniError {
  const allowed =
    rules.length === 0
      ? `"${ALLOWLIST}" is empty, which allows none; add lines, or remove the file to allow all`
      : `"${ALLOWLIST}" has no line for it, only the following sysctls are allowed: ` +
        JSON.stringify(rules.map(rule => rule.text));
  return invalidConfig(`Cannot set sysctl "${name}": it is not allowed, ${allowed}`);
}

/** POSIX classes, as they appear within brackets. */
const CLASSES: Readonly<Record<string, string>> = {
  alnum: '0-9A-Za-z',
  alpha: 'A-Za-z',
  ascii: '\\x00-\\x7F',
  blank: '\\t ',
  cntrl: '\\x00-\\x1F\\x7F',
  digit: '0-9',
  graph: '!-~',
  lower: 'a-z',
  print: ' -~',
  punct: '!-\\/:-@[-`{-~',
  space: '\\t\\n\\v\\f\\r ',
  upper: 'A-Z',
  word: '0-9A-Za-z_',
  xdigit: '0-9A-Fa-f',
};

/** Constructs that the two syntaxes write differently, outside of brackets and within; everything else is the same. */
const OUTSIDE = /\\Q(.*?)(?:\\E|$)|\\x\{[0-9A-Fa-f]+\}|\\(.)|\(\?P<|\[\^?\]?/gsy;
const WITHIN = /\[:(\^?)(\w+):\]|\\x\{[0-9A-Fa-f]+\}|\\(.)|\]|\[/gsy;

/**
 * The expression, unanchored as in RE2.
 * @throws Error for invalid expressions, and for those that JavaScript cannot express
 */
export function parseRe2(text: string): RegExp {
  // Flags at the start are the only ones that both support.
  const [, flags = '', source = text] = /^\(\?([ims]+)\)(.*)$/s.exec(text) ?? [];
  let translated = '';
  let within = false;
  for (let at = 0; at < source.length; ) {
    const pieces = within ? WITHIN : OUTSIDE;
    pieces.lastIndex = at;
    const match = pieces.exec(source);
    if (match === null) {
      translated += source[at++];
      continue;
    }
    translated += within ? translateWithin(match) : translateOutside(match);
    if (within ? match[0] === ']' : match[0].startsWith('[')) within = !within;
    at = pieces.lastIndex;
  }
  return new RegExp(translated, flags);
}

function translateOutside([piece, quoted, escaped]: RegExpExecArray): string {
  if (quoted !== undefined) return quoted.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  if (piece === '(?P<') return '(?<';
  // A bracket directly after the opening one is a member; in JavaScript it would end an empty class.
  if (piece.startsWith('[')) return piece.endsWith(']') ? `${piece.slice(0, -1)}\\]` : piece;
  if (escaped === 'A') return '(?<![^])';
  if (escaped === 'z') return '(?![^])';
  return translateEscape(piece, escaped);
}

function translateWithin([piece, negated, name, escaped]: RegExpExecArray): string {
  if (name !== undefined) {
    const members = negated ? undefined : CLASSES[name];
    if (members === undefined) throw new SyntaxError(`${piece} is not supported`);
    return members;
  }
  if (piece === '[') return '\\[';
  return piece === ']' ? piece : translateEscape(piece, escaped);
}

function translateEscape(piece: string, escaped: string | undefined): string {
  if (escaped === undefined) {
    const code = Number.parseInt(piece.slice(3, -1), 16);
    if (code > 0xffff) throw new SyntaxError(`${piece} is not supported`);
    return `\\u${code.toString(16).padStart(4, '0')}`;
  }
  if (['p', 'P', 'C'].includes(escaped)) throw new SyntaxError(`${piece} is not supported`);
  return piece;
}

export interface Sysctl {
  /** The name as configured. */
  readonly key: string;
  /** Below /proc/sys, with slashes; the first one that exists is used. */
  readonly paths: readonly [string, ...string[]];
  readonly value: string;
}

/** Placeholder in a name for the name of the interface. */
const PLACEHOLDER = 'IFNAME';

/**
 * The parameters of several sources in the given order; a later source overrides an earlier one.
 * @throws CniError 7 for a name outside of `net`, or two names in one source for the same parameter
 */
export function planSysctls(
  sources: readonly (Readonly<Record<string, string>> | undefined)[],
  ifname: string,
): Sysctl[] {
  const planned = new Map<string, Sysctl>();
  for (const source of sources) {
    const keys = new Map<string, string>();
    for (const [key, value] of Object.entries(source ?? {})) {
      const paths = readSysctlKey(key, ifname);
      const other = keys.get(paths[0]);
      if (other !== undefined) {
        throw invalidConfig(
          `Cannot use "sysctl": duplicated sysctl keys are not allowed, "${other}" and "${key}" are the same sysctl`,
        );
      }
      keys.set(paths[0], key);
      planned.set(paths[0], { key, paths, value });
    }
  }
  return [...planned.values()];
}

/**
 * Files that a name may denote, best first: with every dot as a slash, as in the reference; and, if both separators occur, as
 * sysctl(8) reads it, so that interface names with dots can be written.
 * @throws CniError 7 when it is outside of `net`, or has a component that is empty, "." or "..": such a path would denote another
 * parameter than the name suggests, and the allowlist checks names
 */
export function readSysctlKey(key: string, ifname: string): [string, ...string[]] {
  // The reference also accepts a path with a leading slash.
  const name = key.replace(/^\//, '');
  if (name.split(/[./]/).includes('')) {
    throw invalidKey(key, 'it has an empty component, "." or ".."; write it like "net.core.somaxconn"');
  }
  const first = resolve(name.replaceAll('.', '/'), ifname);
  if (first === undefined) throw invalidKey(key, 'only parameters below "net" can be set');
  const swapped = /[./]/.exec(name)?.[0] === '.' ? exchangeSeparators(name) : name;
  const second = resolve(swapped, ifname);
  return second === undefined || second === first ? [first] : [first, second];
}

/** The names that a rule may use for a path: as sysctl(8) prints it, and with slashes. */
function namesOf(path: string): [dotted: string, slashed: string] {
  return [exchangeSeparators(path), path];
}

/** True for a normalized path below /proc/sys that stays in `net`. */
export function isSysctlPath(path: string): boolean {
  return path.startsWith('net/') && posix.normalize(path) === path && !path.includes('\0');
}

/** The interface's name is inserted last, so that dots in it are kept. */
function resolve(slashed: string, ifname: string): string | undefined {
  const path = slashed.replace(PLACEHOLDER, () => ifname);
  return isSysctlPath(path) ? path : undefined;
}

function exchangeSeparators(text: string): string {
  return text.replace(/[./]/g, separator => (separator === '.' ? '/' : '.'));
}

function invalidKey(key: string, state: string): CniError {
  return invalidConfig(`Cannot use "sysctl": invalid net sysctl key: "${key}", ${state}`);
}
