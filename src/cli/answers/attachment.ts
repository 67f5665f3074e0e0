// Which parts do several answers share?
import * as z from 'zod/mini';

/** What identifies an attachment. */
export const ATTACHMENT_ID = {
  /** Name of the network. */
  network: z.string(),
  containerId: z.string(),
  /** Name of the interface in the container. */
  ifname: z.string(),
};

/** The error object of the specification. */
export const SpecError = z.strictObject({
  cniVersion: z.optional(z.string()),
  /** Of the specification below 100, else of the plugin. */
  code: z.int(),
  msg: z.string(),
  details: z.optional(z.string()),
});

/** The identity of an attachment. */
export const AttachmentName = z.strictObject({
  ...ATTACHMENT_ID,
});
