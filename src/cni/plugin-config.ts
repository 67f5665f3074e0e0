// Which keys does every plugin configuration share?
import * as z from 'zod/mini';
import { Dns } from './result-schema.ts';
import { optionalObject, optionalText } from './schema-parts.ts';

/** An attachment as GC's valid list names it. */
export const AttachmentKey = z.object({ containerID: z.string(), ifname: z.string() });
export type AttachmentKey = z.output<typeof AttachmentKey>;

/** Key under which GC carries the attachments that are to stay (SPEC "GC"). */
export const VALID_ATTACHMENTS = 'cni.dev/valid-attachments';

/** Keys the specification defines for a plugin configuration; a link's own schema extends this one. */
export const PluginConfig = z.looseObject({
  /** Version of the specification; in a list, the runtime puts the list's here. */
  cniVersion: optionalText,
  /** Name of the network; in a list, the runtime puts the list's here. */
  name: optionalText,
  /** Name of the executable, looked up along CNI_PATH. */
  type: z.string().check(z.minLength(1)),
  /** What the runtime may pass to this link: true by name of the capability. */
  capabilities: z.optional(z.record(z.string(), z.boolean())),
  /** The IPAM plugin that the link calls, and its options. */
  ipam: z.optional(z.looseObject({ type: optionalText })),
  /** Resolver settings for the result. */
  dns: z.optional(Dns),
  /** Result of the link before; the runtime's to set. */
  prevResult: optionalObject,
  /** Attachments that GC keeps; the runtime's to set. */
  [VALID_ATTACHMENTS]: z.optional(z.array(AttachmentKey)),
});
export type PluginConfig = z.output<typeof PluginConfig>;
