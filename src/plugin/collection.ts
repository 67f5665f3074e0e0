// What does a plugin's GC go by: which attachments existed when it began, and which of them does it keep?
//
// Loaded for GC only, like the snapshots that it uses.

import { findGeneration, forget, listGenerations } from '../attachments/generation.ts';
import { hasBegunSince, joinRun, readSnapshot, type Snapshot } from '../attachments/snapshot.ts';
import { type AttachmentId, isSameContainer } from '../cni/attachment.ts';
import { runDir } from '../cni/directories.ts';
import { ASKED_VARIABLE, SNAPSHOT_VARIABLE } from '../cni/env.ts';
import { type JsonObject, memberOf } from '../cni/json.ts';
import { type AttachmentKey, VALID_ATTACHMENTS } from '../cni/schemas.ts';
import type { Log } from '../log.ts';
import type { KeptAttachments } from './define.ts';

/** The part of a call that GC needs before the plugin acts. */
interface CollectingCall {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly request: JsonObject;
  readonly network: string;
}

/**
 * The snapshot that a GC uses: the one that our runner names, else that of the run that the call belongs to.
 * @param plugin name of the plugin that is called
 */
export function snapshotOf({ environment, request, network }: CollectingCall, plugin: string): Snapshot {
  const { [SNAPSHOT_VARIABLE]: path, [ASKED_VARIABLE]: since } = environment;
  // Our runner has died, or the disk fails: assume that every attachment with a note is newer than GC.
  if (path) return readSnapshot(path) ?? { tokens: new Set(), time: 0 };
  const { [VALID_ATTACHMENTS]: _, 'cni.dev/attachments': __, ...conf } = request;
  const list = String(Bun.hash(JSON.stringify(memberOf(request, VALID_ATTACHMENTS) ?? null)));
  const asked = `${plugin} ${Bun.hash(JSON.stringify(conf))}`;
  return joinRun(runDir(environment), { network, list, plugin: asked }, since ? Number(since) : undefined);
}

/** Removes the notes of attachments that GC has collected. */
export function sweepNotes(
  { environment, log, network }: Omit<CollectingCall, 'request'> & { readonly log: Log },
  kept: KeptAttachments,
): void {
  for (const { containerId, ifname } of listGenerations(runDir(environment), network)) {
    const attachment = { network, containerId, ifname };
    if (!kept.has(attachment)) forget({ attachment, environment, log });
  }
}

/** Combines the runtime's list and the attachments that are not in the snapshot taken when GC began. */
export function keptAttachments(
  listed: readonly AttachmentKey[],
  { network, runDir, snapshot }: { network: string; runDir: string; snapshot: Snapshot },
): KeptAttachments {
  // A set, because a node may have as many attachments as it has leases.
  const names = new Set(listed.map(({ containerID, ifname }) => `${containerID}/${ifname}`));
  const named = listed.map(({ containerID, ifname }) => ({ network, containerId: containerID, ifname }));
  const later = (): AttachmentId[] =>
    listGenerations(runDir, network)
      .filter(({ token }) => !snapshot.tokens.has(token))
      .map(({ containerId, ifname }) => ({ network, containerId, ifname }));
  const some = (test: (owner: AttachmentId) => boolean): boolean => named.some(test) || later().some(test);
  return {
    since: snapshot.time,
    some,
    isNoted: ({ containerId, ifname }) =>
      findGeneration(runDir, { network, containerId, ifname }) !== undefined,
    has({ containerId, ifname }) {
      if (names.has(`${containerId}/${ifname}`)) return true;
      if (containerId.startsWith('~'))
        return some(one => one.ifname === ifname && isSameContainer(one.containerId, containerId));
      return hasBegunSince(snapshot, runDir, { network, containerId, ifname });
    },
  };
}
