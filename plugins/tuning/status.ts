// Could ADD tune an interface now?
import { accessSync, constants, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { describeError } from '../../src/cni/errors.ts';
import { requireLinkChanges } from '../../src/netlink/rtnl/supported.ts';
import type { Call } from '../../src/plugin/define.ts';
import { canWriteSysctl } from '../../src/sys/sysctl.ts';
import { readAllowlist, refuseUnlisted } from './allowlist.ts';
import { backupPathOf } from './backup.ts';
import type { TuningConf } from './config.ts';
import { planTuning } from './plan.ts';

/** Exists in every kernel with networking. */
const SOME_SYSCTL = 'net/core/somaxconn';

/**
 * Looks for anything that would make ADD fail: impossible values, the allowlist, a read-only /proc, missing rights, a backup
 * directory that cannot be written. Changes nothing.
 * @throws Error describing the obstacle
 */
export function probeTuning({ conf, args, host }: Call<TuningConf>): void {
  const { sysctls, link } = planTuning(conf, args, 'eth0');
  const hasLink = Object.keys(link).length > 0;
  if (sysctls.length > 0) {
    refuseUnlisted(sysctls, readAllowlist());
    if (!canWriteSysctl(SOME_SYSCTL)) {
      throw new Error(`Cannot set sysctls on this node: "/proc/sys/${SOME_SYSCTL}" cannot be written`);
    }
  }
  if (hasLink) requireLinkChanges(host);
  if (sysctls.length > 0 || hasLink) requireWritable(dirname(backupPathOf(conf.dataDir, 'id', 'eth0')));
}

/** ADD creates the directory, so what matters is the existing part of its path. */
function requireWritable(directory: string): void {
  try {
    const present = findPresent(directory);
    if (!statSync(present).isDirectory()) throw new Error(`"${present}" is not a directory`);
    accessSync(present, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(`Cannot keep backups in "${directory}": ${describeError(cause)}`, { cause });
  }
}

function findPresent(path: string): string {
  if (statSync(path, { throwIfNoEntry: false }) || dirname(path) === path) return path;
  return findPresent(dirname(path));
}
