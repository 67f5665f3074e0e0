// Which keys does every plugin configuration share?
import * as z from 'zod/mini';
import { Dns } from './result-schema.ts';
import { optionalObject, optionalText } from './schema-parts.ts';

/** An entry of GC's list of valid attachments. */
export const AttachmentKey = z.object({ containerID: z.string(), ifname: z.string() });
export type AttachmentKey = z.output<typeof AttachmentKey>;

/** The key under which GC passes the attachments to keep (SPEC "GC"). */
export const VALID_ATTACHMENTS = 'cni.dev/valid-attachments';

/**
 * Keys that the specification defines for a plugin configuration; each plugin's own schema extends this one. It covers what
 * a running plugin can use. `type` may be missing: it is for the runtime, which has already found the plugin.
 */
export const PluginConfig = z.looseObject({
  /** Version of the specification; in a list, the runtime sets it to the list's. */
  cniVersion: optionalText,
  /** Name of the network; in a list, the runtime sets it to the list's. */
  name: optionalText,
  /** Name of the executable, looked up in CNI_PATH. */
  type: optionalText,
  /** What the runtime may pass to this plugin: true by name of the capability. */
  capabilities: z.optional(z.record(z.string(), z.boolean())),
  /** The IPAM plugin that the plugin calls, and its options. */
  ipam: z.optional(z.looseObject({ type: optionalText })),
  /** Resolver settings for the result. */
  dns: z.optional(Dns),
  /** Result of the previous plugin; set by the runtime. */
  prevResult: optionalObject,
  /** Attachments that GC keeps; set by the runtime. */
  [VALID_ATTACHMENTS]: z.optional(z.array(AttachmentKey)),
});
export type PluginConfig = z.output<typeof PluginConfig>;

/** The same in a conflist or a file of its own, where `type` is required. */
export const ListedPlugin = z.extend(PluginConfig, {
  /** Name of the executable, looked up in CNI_PATH. */
  type: z.string().check(z.minLength(1)),
});
export type ListedPlugin = z.output<typeof ListedPlugin>;

/** True for a key that only a runtime may set; in a file it has no meaning. */
export function isRuntimeKey(key: string): boolean {
  return key === 'prevResult' || key.startsWith('cni.dev/');
}
