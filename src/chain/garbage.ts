// Which attachments of a network are garbage, and how are they collected?
import { findContainerIdProblem } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { findIfnameProblem } from '../net/ifname.ts';
import type { CachedAttachment } from './cache-record.ts';
import type { Conflist } from './conflist.ts';
import { joinErrors } from './link-errors.ts';
import { IGNORED, openLinks } from './links.ts';
import { buildGcRequest } from './request.ts';
import { listAttachments } from './result-cache.ts';
import { deleteNetwork } from './run.ts';
import { cacheDirOf, type Runtime } from './runtime.ts';
import { alone } from './turns.ts';

/** Which attachments GC leaves: those listed, or none at all. Leaving it out is not possible by accident. */
export type GcScope = { readonly valid: readonly AttachmentKey[] } | { readonly all: true };

/** What GC does to a network. */
export interface GarbagePlan {
  readonly network: string;
  /** Why nothing at all is done: the list says `disableGC`. */
  readonly disabled: boolean;
  /** Attachments on record that get DEL, since the scope does not name them. */
  readonly stale: readonly CachedAttachment[];
  /** Attachments on record that stay, since the scope names them. */
  readonly kept: readonly CachedAttachment[];
  /** Links that get GC with the list of what is valid, in order; none before 1.1.0. */
  readonly links: readonly string[];
  /** What GC tells them is valid. */
  readonly valid: readonly AttachmentKey[];
  /** Records of this network that cannot be read: nobody knows whether they are garbage, so they stay. */
  readonly damaged: readonly CniError[];
}

/**
 * What {@link collectGarbage} would do now. Nothing is changed and no link is called.
 * @throws CniError 7 without a scope, 5 when the cache cannot be listed
 */
export function planGarbage(
  list: Conflist,
  scope: GcScope,
  runtime: Pick<Runtime, 'cacheDir' | 'env'>,
): GarbagePlan {
  const valid = validOf(scope);
  if (list.disableGC) {
    return { network: list.name, disabled: true, stale: [], kept: [], links: [], valid, damaged: [] };
  }
  const { attachments, damaged } = listAttachments(cacheDirOf(runtime), { network: list.name });
  const isValid = ({ containerId, ifname }: CachedAttachment) =>
    valid.some(key => key.containerID === containerId && key.ifname === ifname);
  return {
    network: list.name,
    disabled: false,
    stale: attachments.filter(one => !isValid(one)),
    kept: attachments.filter(isValid),
    links: atLeast(list.version, SINCE.gc) ? list.plugins.map(({ type }) => type) : [],
    valid,
    damaged,
  };
}

/**
 * Deletes every attachment of the network on record that is not valid, with the configuration of its own ADD, then
 * lets each link (from 1.1.0 on) collect what it finds. Goes on after errors. Within this process nothing else runs
 * on the cache meanwhile.
 * @returns what was done
 * @throws CniError 7 without a scope; else one that joins what failed
 */
export function collectGarbage(list: Conflist, scope: GcScope, runtime: Runtime): Promise<GarbagePlan> {
  return alone(runtime, () => collect(list, scope, runtime));
}

async function collect(list: Conflist, scope: GcScope, runtime: Runtime): Promise<GarbagePlan> {
  const plan = planGarbage(list, scope, runtime);
  for (const problem of plan.damaged) runtime.onWarning?.(problem);
  const errors: unknown[] = [];
  for (const stale of plan.stale) {
    await deleteNetwork(list, stale, runtime).catch(error => {
      const what = `Cannot delete stale attachment "${stale.containerId}" "${stale.ifname}"`;
      errors.push(new Error(what, { cause: error }));
    });
  }
  if (plan.links.length) {
    const links = openLinks(list, 'GC', runtime, [...list.plugins.keys()], IGNORED);
    for (const [index, entry] of list.plugins.entries()) {
      await links.call(index, buildGcRequest(list, entry, plan.valid)).catch(error => errors.push(error));
    }
    links.close();
  }
  if (errors.length) throw joinErrors(`Cannot collect garbage of network "${list.name}"`, errors);
  return plan;
}

/** A key with a typing mistake would name nothing, and what it was meant to keep would be deleted. */
function validOf(scope: GcScope): readonly AttachmentKey[] {
  if ('all' in scope && scope.all === true && !('valid' in scope)) return [];
  const valid: unknown = 'valid' in scope ? scope.valid : undefined;
  if (!Array.isArray(valid)) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot collect garbage: neither the valid attachments are given nor that all are to go',
    );
  }
  for (const key of valid as readonly Partial<AttachmentKey>[]) {
    const { containerID = '', ifname = '' } = key ?? {};
    const problem = findContainerIdProblem(containerID) ?? findIfnameProblem(ifname);
    if (problem === undefined) continue;
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use valid attachment ${JSON.stringify(key)}: ${problem}`,
    );
  }
  return valid;
}
