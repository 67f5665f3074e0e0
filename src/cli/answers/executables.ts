// What do the commands print that examine configurations, and examine or replace executables?
import * as z from 'zod/mini';
import { ATTACHMENT_ID, listOf } from './attachment.ts';

/** A failure, human-readable. */
export const TrialFailure = z.strictObject({
  message: z.string(),
  code: z.optional(z.int()),
  details: z.optional(z.string()),
  /** Last lines of the plugin's standard error. */
  stderr: z.optional(z.string()),
});

/** One plugin's part in a verb. */
export const TriedPlugin = z.strictObject({
  /** Type of the plugin, with the plugins that it delegates to: `bridge + host-local`. */
  type: z.string(),
  durationMs: z.number(),
  /** What it added to the result. */
  result: z.array(z.string()),
  /** What it changed on the host. */
  host: z.array(z.string()),
  /** What it changed in the container. */
  container: z.array(z.string()),
  /** What it changed in files. */
  files: z.array(z.string()),
  failure: z.optional(TrialFailure),
});

/** One run of the chain. */
export const TriedVerb = z.strictObject({
  verb: z.string(),
  durationMs: z.number(),
  plugins: z.array(TriedPlugin),
  failure: z.optional(TrialFailure),
  /** Why it did not run. */
  skipped: z.optional(z.string()),
});

/** Whether something works in the container. */
export const Probe = z.strictObject({
  what: z.string(),
  outcome: z.enum(['ok', 'failed', 'skipped']),
  seen: z.string(),
});

/** `catena try`. */
export const Trial = z.strictObject({
  ok: z.boolean(),
  network: z.optional(z.string()),
  /** Of the list. */
  version: z.optional(z.string()),
  /** The number of plugins. */
  plugins: z.optional(z.int()),
  /** It ran in a user namespace, without root. */
  rootless: z.optional(z.boolean()),
  durationMs: z.number(),
  verbs: z.array(TriedVerb),
  probes: z.array(Probe),
  /** What DEL left behind. */
  left: z.array(z.string()),
  /** What plugins keep for the next attachment. */
  kept: z.array(z.string()),
});

/** A difference between two sets of executables. */
export const Difference = z.strictObject({
  scene: z.string(),
  step: z.string(),
  verb: z.string(),
  /** Position of the plugin in its list; absent for a step as a whole. */
  index: z.optional(z.int()),
  /** `result`, `answer`, `files`, or the namespace. */
  where: z.string(),
  what: z.string(),
  first: z.optional(z.string()),
  second: z.optional(z.string()),
  /** Other scenes with this difference. */
  alsoIn: z.array(z.string()),
});

/** Median milliseconds of both sets. */
export const Times = z.strictObject({
  first: z.number(),
  second: z.number(),
});

/** A plugin whose ADD never succeeds on either side: a common failure cannot be compared. */
export const FailingPlugin = z.strictObject({
  index: z.int(),
  type: z.string(),
  message: z.string(),
});

/** One plugin, or the chain as a whole with -1 as its index. */
export const ComparedPlugin = z.strictObject({
  index: z.int(),
  type: z.string(),
  differences: z.array(Difference),
  /** By verb. */
  times: z.record(z.string(), Times),
});

/** How one set of executables handled the other set's attachment. */
export const Crossing = z.strictObject({
  scene: z.string(),
  maker: z.enum(['A', 'B']),
  verb: z.enum(['CHECK', 'DEL']),
  by: z.enum(['A', 'B']),
  /** The maker had handed the attachment over first. */
  handedOver: z.boolean(),
  /** Why there is no outcome: the attachment could not be made or handed over. */
  untried: z.optional(z.string()),
  /** Plugins that failed, with their messages. */
  fails: z.array(z.string()),
  /** The container's objects that exist after DEL. */
  left: z.array(z.string()),
});

/** `catena compare`. */
export const Comparison = z.strictObject({
  network: z.string(),
  /** True when the chain works and shows no difference. */
  same: z.boolean(),
  failing: z.array(FailingPlugin),
  scenes: z.array(z.string()),
  plugins: z.array(ComparedPlugin),
  /** How one set of executables finished what the other began. */
  crossings: z.array(Crossing),
});

/** A rule of the protocol, and whether the executable keeps it. */
export const RuleOutcome = z.strictObject({
  /** `group/name`; the same in all releases. */
  id: z.string(),
  /** What a conforming plugin does, in the present tense. */
  title: z.string(),
  /** `must`: a MUST of the specification. `should`: good practice according to it or to the reference. */
  level: z.enum(['must', 'should']),
  /** Section of the specification, or other origin. */
  source: z.string(),
  outcome: z.enum(['kept', 'broken', 'skipped']),
  /** What was seen, or why it was skipped. */
  details: z.optional(z.string()),
});

/** `catena conformance`. */
export const Conformance = z.strictObject({
  executable: z.string(),
  ok: z.boolean(),
  supportedVersions: z.array(z.string()),
  /** How many times it was started. */
  calls: z.int(),
  rules: z.array(RuleOutcome),
});

/** An entry of a list that calls an executable. */
export const NetworkUse = z.strictObject({
  network: z.string(),
  /** Position of the entry in its list, from 0. */
  index: z.int(),
  as: z.enum(['plugin', 'ipam', 'delegate']),
});

/** A replacement that can be undone. */
export const NotedSwap = z.strictObject({
  /** Name of the old executable in the directory of swaps. */
  kept: z.string(),
  /** Digest of the old executable. */
  before: z.string(),
  /** Digest of the new executable. */
  after: z.string(),
  /** Path that the new executable came from. */
  from: z.string(),
  /** ISO time. */
  time: z.string(),
});

/** The executable behind a plugin type. */
const SURVEYED = {
  /** The type. */
  type: z.string(),
  /** The file found on `CNI_PATH`. */
  target: z.string(),
  digest: z.string(),
  /** Files of the same name that come later on `CNI_PATH` and are therefore never called. */
  hidden: z.array(z.string()),
  /** Other names of the same file in its directory. */
  otherNames: z.array(z.string()),
  /** The uses by the network itself come first. */
  calledBy: z.array(NetworkUse),
  /** Swaps that can be undone, oldest first. */
  swaps: z.array(NotedSwap),
};

/** What is known about the executable that a network calls for a plugin type. */
export const Survey = z.strictObject({ ...SURVEYED });

/** `catena swap` without `--to` and `--undo`. */
export const SurveyList = listOf(Survey);

/** CHECK of an attachment. */
export const AttachmentCheck = z.strictObject({
  ...ATTACHMENT_ID,
  /** `unknown`: no CHECK could be run. */
  state: z.enum(['sound', 'broken', 'unknown']),
  /** What CHECK reported, or why it could not be run. */
  problem: z.optional(z.string()),
  /** Its list has no CHECK, so nothing but another list would change that it is unknown. */
  unchecked: z.optional(z.literal(true)),
  /** The command that mends it, or the sentence that says that only its runtime can; of a broken one. */
  mend: z.optional(z.string()),
});

/** `catena swap --to` and `--undo`. */
export const Replacement = z.strictObject({
  outcome: z.enum(['planned', 'refused', 'declined', 'same', 'swapped', 'put back', 'undone']),
  /** Why it was refused or put back, and anything else worth knowing. */
  why: z.optional(z.string()),
  network: z.string(),
  ...SURVEYED,
  candidate: z.optional(z.string()),
  conformance: z.optional(Conformance),
  comparison: z.optional(Comparison),
  /** CHECK before the swap. */
  before: z.optional(z.array(AttachmentCheck)),
  /** Attachments that passed before the swap and fail after it. */
  worse: z.optional(z.array(AttachmentCheck)),
});

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
export const IpamExplanation = z.strictObject({ ...EXPLAINED });

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
