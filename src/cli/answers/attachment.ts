// Which parts do several answers share, and what does a command print on standard error?
import * as z from 'zod/mini';

/** What identifies an attachment. */
export const ATTACHMENT_ID = {
  /** Name of the network. */
  network: z.string(),
  containerId: z.string(),
  /** Name of the interface in the container. */
  ifname: z.string(),
};

/** A list, which has nothing but its items. */
export function listOf<T extends z.core.$ZodType>(item: T) {
  return z.strictObject({ items: z.array(item) });
}

const SPEC_ERROR = {
  cniVersion: z.optional(z.string()),
  /** Of the specification below 100, else of the plugin. */
  code: z.int(),
  msg: z.string(),
  details: z.optional(z.string()),
};

/** The error object of the specification. */
export const SpecError = z.strictObject({ ...SPEC_ERROR });

/** The identity of an attachment. */
export const AttachmentName = z.strictObject({ ...ATTACHMENT_ID });

/** How a plugin failed, and how its process ended. */
export const PluginFailure = z.strictObject({
  network: z.string(),
  type: z.string(),
  /** Position of the plugin in its list, from 0. */
  index: z.int(),
  executable: z.optional(z.string()),
  verb: z.string(),
  exitCode: z.optional(z.int()),
  signal: z.optional(z.string()),
  /** Why the runner ended the process: it missed its deadline, printed too much, or the caller gave up. */
  ended: z.optional(z.enum(['deadline', 'output', 'interrupt'])),
  durationMs: z.optional(z.number()),
  /** The end of its standard error. */
  stderr: z.optional(z.string()),
  /** Of the specification below 100, else of the plugin. */
  code: z.int(),
  msg: z.string(),
});

/** What the specification has no place for. */
export const FailureDetails = z.strictObject({
  /** The chain's own failure, then those of undoing it. */
  failures: z.array(PluginFailure),
});

/** A problem that did not stop the command; one line of JSON each, before a failure. */
export const Warning = z.strictObject({
  /** An error code of the protocol. */
  code: z.int(),
  message: z.string(),
});

/** The error object of the specification, with one more key. It has no envelope. */
export const Failure = z.strictObject({
  ...SPEC_ERROR,
  /** If plugins failed. */
  catena: z.optional(FailureDetails),
});
