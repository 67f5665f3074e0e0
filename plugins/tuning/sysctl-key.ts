// Which file does a configured sysctl name mean?
import { posix } from 'node:path';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';

/** A kernel parameter to be set. */
export interface Sysctl {
  /** The name as configured, which is what the allowlist judges. */
  readonly key: string;
  /** Below /proc/sys, with slashes; the first one that exists is meant. */
  readonly paths: readonly [string, ...string[]];
  readonly value: string;
}

/** Word in a name that stands for the name of the interface. */
const PLACEHOLDER = 'IFNAME';

/**
 * The parameters of several sources in the order given; a later source overrides an earlier one.
 * @throws CniError 7 for a name that leads out of `net`, or two names in one source for the same parameter
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
          `Cannot use "sysctl": duplicated sysctl keys are not allowed, "${other}" and "${key}" are one`,
        );
      }
      keys.set(paths[0], key);
      planned.set(paths[0], { key, paths, value });
    }
  }
  return [...planned.values()];
}

/**
 * Files that a name may mean, best first: every dot is a slash, as in the reference; and, where both separators occur,
 * as sysctl(8) reads it, so that names of interfaces with dots can be written out.
 * @throws CniError 7 when it leads out of `net`
 */
export function readSysctlKey(key: string, ifname: string): [string, ...string[]] {
  const first = resolve(key.replaceAll('.', '/'), ifname);
  if (first === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "sysctl": invalid net sysctl key: "${key}", only parameters below "net" can be set`,
    );
  }
  const second = resolve(swapSeparators(key), ifname);
  return second === undefined || second === first ? [first] : [first, second];
}

/** True for a path below /proc/sys that stays in `net`, without detours. */
export function isSysctlPath(path: string): boolean {
  return path.startsWith('net/') && posix.normalize(path) === path && !path.includes('\0');
}

/** The interface's name goes in last, so that dots in it stay dots. */
function resolve(slashed: string, ifname: string): string | undefined {
  const path = posix.normalize(`/${slashed.replace(PLACEHOLDER, () => ifname)}`).slice(1);
  return path.startsWith('net/') ? path : undefined;
}

function swapSeparators(key: string): string {
  if (/[./]/.exec(key)?.[0] !== '.') return key;
  return key.replace(/[./]/g, separator => (separator === '.' ? '/' : '.'));
}
