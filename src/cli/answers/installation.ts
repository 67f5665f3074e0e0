// What do the commands print that install, remove or hand over?
import * as z from 'zod/mini';
import { ATTACHMENT_ID } from './attachment.ts';

/** What only a plugin of ours can delete. */
export const PluginParts = z.strictObject({
  link: z.string(),
  /** Position of the plugin in its list, from 0. */
  index: z.int(),
  parts: z.array(z.string()),
});

/** An attachment that other executables shall be able to delete. */
export const Handover = z.strictObject({
  ...ATTACHMENT_ID,
  /** `ready`: nothing that only we can delete. `pending`: there is something. `handed over`: it has been replaced. `refused`: it has not. */
  state: z.enum(['ready', 'pending', 'handed over', 'refused']),
  links: z.array(PluginParts),
  /** Why it was refused. */
  why: z.optional(z.string()),
});

/** `catena handover`. */
export const HandoverList = z.strictObject({
  items: z.array(Handover),
});

/** A file of an installation. */
export const InstallStep = z.strictObject({
  place: z.enum(['bin', 'conf', 'account', 'starter', 'shared']),
  name: z.string(),
  path: z.string(),
  /** `keep`: not ours, left alone. `retire`: our earlier file, which now has another name. */
  action: z.enum(['create', 'update', 'replace', 'same', 'keep', 'retire']),
  why: z.optional(z.string()),
});

/** Whether a runtime uses the installed list. */
export const RuntimePick = z.strictObject({
  runtime: z.enum(['containerd', 'CRI-O', 'podman']),
  taken: z.boolean(),
  /** Why ours is used, or which one is and why ours is not. */
  why: z.string(),
});

/** `catena install`. */
export const Installation = z.strictObject({
  ok: z.boolean(),
  steps: z.array(InstallStep),
  /** Why the list has its file name. */
  reason: z.optional(z.string()),
  picks: z.array(RuntimePick),
  notes: z.array(z.string()),
});

/** A file of an installation that is removed. */
export const UninstallStep = z.strictObject({
  path: z.string(),
  /** `restore`: the file from before the installation is restored. `keep`: it is not ours, or no longer. */
  action: z.enum(['remove', 'restore', 'keep']),
  why: z.optional(z.string()),
});

/** Something else of ours on the node. */
export const PurgeStep = z.strictObject({
  /** `keep`: others use it, or it is not known to be ours. */
  action: z.enum(['remove', 'keep']),
  /** Human-readable: `table "inet catena_portmap"`. */
  what: z.string(),
  why: z.optional(z.string()),
});

/** `catena uninstall`. */
export const Uninstallation = z.strictObject({
  steps: z.array(UninstallStep),
  /** With `--purge`. */
  purged: z.optional(z.array(PurgeStep)),
  attachments: z.optional(z.array(Handover)),
  /** Why nothing was removed. */
  refusal: z.optional(z.string()),
});
