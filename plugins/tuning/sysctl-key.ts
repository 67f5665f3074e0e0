// Which file does a configured sysctl name denote?
import { posix } from 'node:path';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';

/** A kernel parameter to set. */
export interface Sysctl {
  /** The name as configured. */
  readonly key: string;
  /** Below /proc/sys, with slashes; the first one that exists is used. */
  readonly paths: readonly [string, ...string[]];
  readonly value: string;
}

/** Placeholder in a name for the name of the interface. */
export const PLACEHOLDER = 'IFNAME';

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
        throw new CniError(
          ErrorCode.invalidConfig,
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
  const second = resolve(swapSeparators(name), ifname);
  return second === undefined || second === first ? [first] : [first, second];
}

/** The names that a rule may use for a path: as sysctl(8) prints it, and with slashes. */
export function namesOf(path: string): [dotted: string, slashed: string] {
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

function swapSeparators(name: string): string {
  return /[./]/.exec(name)?.[0] === '.' ? exchangeSeparators(name) : name;
}

function exchangeSeparators(text: string): string {
  return text.replace(/[./]/g, separator => (separator === '.' ? '/' : '.'));
}

function invalidKey(key: string, state: string): CniError {
  return new CniError(
    ErrorCode.invalidConfig,
    `Cannot use "sysctl": invalid net sysctl key: "${key}", ${state}`,
  );
}
