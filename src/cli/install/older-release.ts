// May this release replace a newer one under attachments that exist?
import compare from 'semver/functions/compare.js';
import valid from 'semver/functions/valid.js';
import { isMadeIn, listAttached } from '../../handover/attachments.ts';
import { findManifest } from '../../install/manifest.ts';
import { count } from '../../lab/words.ts';
import type { CommandCall } from '../command.ts';
import { runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/**
 * Why not: a newer release is installed, and this one need not know what its attachments consist of. Undefined if none exists, or
 * the installed release is not newer.
 */
export function findOlderProblem(call: CommandCall, binDir: string): string | undefined {
  const installed = findManifest(binDir)?.catena;
  if (!valid(installed) || !installed || compare(installed, TOOL_VERSION) <= 0) return undefined;
  const standing = listAttached(undefined, runtimeOf(call)).filter(
    one => !one.isGone && isMadeIn(binDir, one),
  );
  const [first] = standing;
  if (first === undefined) return undefined;
  const { network, containerId, ifname } = first;
  return `release ${installed} in ${binDir} is newer than this one, ${TOOL_VERSION}, and may have made what this one cannot delete of ${count(standing.length, 'attachment')} (${network} ${containerId} ${ifname}); delete the containers, or run its "catena uninstall --hand-over --to <dir>" first`;
}
