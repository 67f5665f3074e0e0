// What do the commands print that examine lists?
import * as z from 'zod/mini';
import { ATTACHMENT_ID } from './attachment.ts';

/** A problem at a position; line and column count from 1. */
export const ValidationFinding = z.strictObject({
  file: z.string(),
  line: z.int(),
  column: z.int(),
  /** `error`: the list does not load, or ADD fails. `warning`: it runs, but probably not as intended. */
  severity: z.enum(['error', 'warning']),
  /** Stable, so that findings can be filtered by it. */
  rule: z.string(),
  message: z.string(),
  /** Further lines, such as the versions that each plugin supports. */
  details: z.optional(z.array(z.string())),
});

/** `catena validate`. */
export const Validation = z.strictObject({
  valid: z.boolean(),
  /** The number of files. */
  files: z.int(),
  /** The number of errors. */
  errors: z.int(),
  /** The number of warnings. */
  warnings: z.int(),
  /** By file and position. */
  findings: z.array(ValidationFinding),
});

/** An option and its value. */
export const OptionExplanation = z.strictObject({
  name: z.string(),
  value: z.optional(z.unknown()),
  /** Absent for an option that the plugin does not know. */
  meaning: z.optional(z.string()),
});

/** What every plugin of a list, and its IPAM plugin, have. */
const EXPLAINED = {
  type: z.string(),
  /** Absent for a plugin that is not ours. */
  kind: z.optional(z.enum(['main', 'ipam', 'meta'])),
  summary: z.optional(z.string()),
  /** What the list sets, in its order. */
  options: z.array(OptionExplanation),
  /** What it leaves at a default. */
  defaults: z.array(OptionExplanation),
  /** Capabilities that a runtime may use: ports, rates, addresses. */
  capabilities: z.array(z.string()),
  /** The one of them without which the plugin does nothing. */
  idleWithout: z.optional(z.string()),
  /** What an attachment has from it, and what must or will exist on the host. */
  effects: z.array(z.string()),
};

/** The plugin that assigns addresses for another one. */
export const IpamExplanation = z.strictObject({
  ...EXPLAINED,
});

/** One plugin of a list. */
export const PluginExplanation = z.strictObject({
  ...EXPLAINED,
  ipam: z.optional(IpamExplanation),
});

/** Whether a runtime would use the list. */
export const RuntimeVerdict = z.strictObject({
  runtime: z.enum(['containerd', 'CRI-O', 'podman']),
  used: z.boolean(),
  why: z.string(),
});

/** `catena validate --explain`. */
export const NetworkExplanation = z.strictObject({
  network: z.string(),
  cniVersion: z.string(),
  /** What the list sets for all its plugins. */
  options: z.array(OptionExplanation),
  plugins: z.array(PluginExplanation),
  /** Who can reach whom: sentences, as far as the plugins say. */
  reach: z.array(z.string()),
  runtimes: z.array(RuntimeVerdict),
});

/** `catena help <code>`. */
export const CodeExplanation = z.strictObject({
  code: z.int(),
  meaning: z.string(),
  /** Usual causes, the most frequent one first. */
  causes: z.array(z.string()),
  /** What to do, in this order. */
  advice: z.array(z.string()),
});

/** The versions that a plugin lists; they may include versions that do not exist. */
export const PluginVersions = z.strictObject({
  type: z.string(),
  supportedVersions: z.array(z.string()),
});

/** `catena networks --versions`. */
export const NetworkVersions = z.strictObject({
  network: z.string(),
  cniVersion: z.string(),
  /** Every plugin supports the version of the list. */
  usable: z.boolean(),
  /** The highest version that all plugins support; null if there is none. */
  highestCommon: z.nullable(z.string()),
  plugins: z.array(PluginVersions),
});

/** A plugin that a chain would call. */
export const PlannedCall = z.strictObject({
  type: z.string(),
  executable: z.string(),
  /** Its standard input, without a `prevResult`; secrets are masked. */
  request: z.record(z.string(), z.unknown()),
});

/** `--dry-run` of `catena add`, `attach`, `set`, `detach` and `del`: which plugins would be called, in this order. */
export const ChainPlan = z.strictObject({
  verb: z.enum(['ADD', 'SET', 'DEL']),
  ...ATTACHMENT_ID,
  netns: z.string(),
  cniVersion: z.string(),
  /** Whether an ADD of the attachment is on record. */
  recorded: z.boolean(),
  plugins: z.array(PlannedCall),
});

/** `catena init`. */
export const NewNetwork = z.strictObject({
  file: z.string(),
  /** As written. */
  list: z.record(z.string(), z.unknown()),
});
