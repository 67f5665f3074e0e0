// Which keys does every plugin configuration share?
import * as z from 'zod/mini';
import { Dns } from './result.ts';

/** An attachment as GC's valid list names it. */
export const AttachmentKey = z.object({ containerID: z.string(), ifname: z.string() });
export type AttachmentKey = z.output<typeof AttachmentKey>;

/** Key under which GC carries the attachments that are to stay (SPEC "GC"). */
export const VALID_ATTACHMENTS = 'cni.dev/valid-attachments';

/** Keys the specification defines for a plugin configuration; a link's own schema extends this one. */
export const PluginConfig = z.looseObject({
  cniVersion: z.optional(z.string()),
  name: z.optional(z.string()),
  type: z.string().check(z.minLength(1)),
  capabilities: z.optional(z.record(z.string(), z.boolean())),
  ipam: z.optional(z.looseObject({ type: z.optional(z.string()) })),
  dns: z.optional(Dns),
  prevResult: z.optional(z.looseObject({})),
  [VALID_ATTACHMENTS]: z.optional(z.array(AttachmentKey)),
});
export type PluginConfig = z.output<typeof PluginConfig>;
