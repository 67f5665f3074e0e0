// Which sysctls does the node's administrator allow a configuration to set?
import { readFileSync } from 'node:fs';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { parseRe2 } from './re2.ts';
import { namesOf, PLACEHOLDER, readSysctlKey, type Sysctl } from './sysctl-key.ts';

/** One regular expression per line; the path is the reference's. */
const ALLOWLIST = '/etc/cni/tuning/allowlist.conf';

/** A line of the list and its expression. */
export interface AllowRule {
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
  return new CniError(ErrorCode.invalidConfig, `Cannot set sysctl "${name}": it is not allowed, ${allowed}`);
}
