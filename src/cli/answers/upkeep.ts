// What do the commands print that delete or repair attachments?
import * as z from 'zod/mini';
import { ATTACHMENT_ID, SpecError } from './attachment.ts';

/** An attachment that had to be deleted. */
export const Recovery = z.strictObject({
  ...ATTACHMENT_ID,
  why: z.string(),
  /** Why that failed; it is retried later. */
  error: z.optional(SpecError),
});

/** A plugin's part of an attachment. */
export const PluginCondition = z.strictObject({
  link: z.string(),
  /** Position of the plugin in its list, from 0. */
  index: z.int(),
  /** `sound`: CHECK passes. `mended`: CHECK passes after something was put back. `broken`: CHECK fails. */
  state: z.enum(['sound', 'mended', 'broken']),
  /** What CHECK reported first. */
  problem: z.optional(z.string()),
  /** What CHECK still reports. */
  error: z.optional(SpecError),
});

/** An attachment after a repair. */
export const AttachmentCondition = z.strictObject({
  ...ATTACHMENT_ID,
  /** `skipped`: its plugins were not called. */
  state: z.enum(['sound', 'mended', 'broken', 'skipped']),
  /** Why it was skipped, or why none of its plugins could be called. */
  why: z.optional(z.string()),
  links: z.array(PluginCondition),
  /** libcni's cached result was missing and has been written again. */
});

/** `catena repair`. */
export const RepairReport = z.strictObject({
  /** Attachments that had to be deleted: crashed operations and failed DELs. */
  recovered: z.array(Recovery),
  attachments: z.array(AttachmentCondition),
  /** Messages about records that cannot be read. */
  damaged: z.array(z.string()),
});

/** An attachment of the network of a plan. */
export const GarbageCandidate = z.strictObject({
  containerId: z.string(),
  ifname: z.string(),
  why: z.optional(z.string()),
  /** What exists of it on this node. */
  objects: z.optional(z.array(z.string())),
});

/** An interface of a container. */
export const ValidAttachment = z.strictObject({
  containerId: z.string(),
  ifname: z.string(),
});

/** `catena gc --dry-run`. */
export const GarbagePlan = z.strictObject({
  network: z.string(),
  /** The list says `disableGC`. */
  disabled: z.boolean(),
  /** Those that would get DEL. */
  delete: z.array(GarbageCandidate),
  keep: z.array(GarbageCandidate),
  /** Leaks of which the container's full id is unknown. */
  unnamed: z.optional(z.array(GarbageCandidate)),
  /** What plugins would be told to keep. */
  valid: z.array(ValidAttachment),
  /** Types of the plugins that would get GC. */
  gc: z.array(z.string()),
  /** Messages about records that cannot be read. */
  damaged: z.array(z.string()),
});

/** An attachment that outlived its namespace. */
export const GoneAttachment = z.strictObject({
  ...ATTACHMENT_ID,
  /** `found`: with `--dry-run`. `kept`: nothing proves that its namespace is gone. `failed`: the next attempt deletes the rest. */
  state: z.enum(['found', 'deleted', 'kept', 'failed']),
  why: z.string(),
  error: z.optional(SpecError),
});

/** `catena gc --gone`. */
export const GoneList = z.strictObject({
  items: z.array(GoneAttachment),
});
