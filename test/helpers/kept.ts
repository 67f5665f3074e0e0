// Which attachments does a plugin's GC keep, in a test that calls only a part of it?
import type { AttachmentKey } from '../../src/cni/schemas.ts';
import { keptAttachments } from '../../src/plugin/collection.ts';
import type { KeptAttachments } from '../../src/plugin/define.ts';

/** The listed attachments of network `podnet`, provided that no other one has been begun since. */
export function keptWith(listed: readonly AttachmentKey[], since = Date.now()): KeptAttachments {
  const snapshot = { tokens: new Set<string>(), time: since };
  return keptAttachments(listed, { network: 'podnet', runDir: '/run/catena-test-none', snapshot });
}
