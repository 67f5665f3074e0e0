// What do the commands print that show a node or change it?
import * as z from 'zod/mini';
import { NodeAttachment } from '../../node/model.ts';
import { ATTACHMENT_ID, AttachmentName, listOf, SpecError } from './attachment.ts';
import { Probe } from './executables.ts';

/** An operation that is still to be undone. */
export const UnsettledRecord = z.strictObject({
  ...ATTACHMENT_ID,
  why: z.string(),
  /** Its record. */
  file: z.string(),
});

/** `catena ls --unsettled`. */
export const UnsettledList = listOf(UnsettledRecord);

/** An attachment that has, or is, what was asked for. */
export const Owner = z.strictObject({
  /** Absent if it is of none on record. */
  attachment: z.optional(NodeAttachment),
  /** How that is known, human-readable. */
  evidence: z.array(z.string()),
});

/** `catena who`. */
export const Owners = z.strictObject({
  /** What was asked for. */
  query: z.string(),
  owners: z.array(Owner),
});

/** One place that a packet passes. */
export const Hop = z.strictObject({
  name: z.enum([
    'mapping',
    'translation',
    'route',
    'forwarding',
    'rules',
    'policy',
    'neighbour',
    'device',
    'queue',
    'listener',
    'reply',
  ]),
  /** The node, or a container. */
  at: z.string(),
  state: z.enum(['passes', 'stops', 'unknown']),
  /** Human-readable. */
  evidence: z.string(),
  /** Command that mends it. */
  mend: z.optional(z.string()),
});

/** `catena why-not`. */
export const PacketWalk = z.strictObject({
  from: z.string(),
  to: z.string(),
  outcome: z.enum(['arrives', 'stopped', 'unknown']),
  /** Rules are simulated, no packet is sent. */
  simulated: z.literal(true),
  /** Up to the first one that stops the packet. */
  hops: z.array(Hop),
});

/** A packet that was sent for an attachment, or could not be. */
export const TrafficProbe = z.strictObject({
  ...ATTACHMENT_ID,
  /** What people call the container. */
  name: z.string(),
  ...Probe.shape,
  /** If it failed: the way of its packet by the rules and routes of the kernel, up to the first hop that stops it. */
  hops: z.optional(z.array(Hop)),
});

/** `catena doctor --traffic`. */
export const TrafficReport = z.strictObject({
  /** `incomplete`: none failed, and none was answered. */
  outcome: z.enum(['ok', 'failed', 'incomplete']),
  probes: z.array(TrafficProbe),
});

/** Something that happened; a line of `catena log --follow`. */
export const LogEntry = z.strictObject({
  /** ISO time. */
  time: z.string(),
  /**
   * `ADD`, `DEL`, `GC`, `SET`, `REPAIR`, `RECOVER`, `ADOPT`, `HANDOVER`, `SWAP`, `INSTALL`, `UNINSTALL`; `LEASE`: an address was leased, and
   * nothing else is known.
   */
  what: z.string(),
  network: z.optional(z.string()),
  containerId: z.optional(z.string()),
  ifname: z.optional(z.string()),
  podNamespace: z.optional(z.string()),
  podName: z.optional(z.string()),
  /** Which program did it, as far as known. */
  by: z.string(),
  /** 0 for success, else an error code of the protocol. */
  code: z.int(),
  message: z.optional(z.string()),
  /** Where that is known from: `history`, `record` or `cached result`, `lease`. */
  source: z.string(),
  /** Id of its trace (`catena log <id>`). */
  trace: z.optional(z.string()),
});

/** `catena log`, oldest first. */
export const LogEntryList = listOf(LogEntry);

/** A file of the configuration directory. */
export const NetworkFile = z.strictObject({
  name: z.string(),
  path: z.string(),
  network: z.optional(z.string()),
  cniVersion: z.optional(z.string()),
  plugins: z.optional(z.array(z.string())),
  /** Why no runtime would read it. */
  ignored: z.optional(z.string()),
  /** Why libcni cannot load it. */
  broken: z.optional(z.string()),
  /** It contains no name; the list's name is that of the file. */
  nameless: z.optional(z.boolean()),
  /** Why no pod could be attached with it, although it loads. */
  unusable: z.optional(z.string()),
});

/** Whether a runtime uses a file. */
export const FileVerdict = z.strictObject({
  file: z.string(),
  used: z.boolean(),
  why: z.string(),
});

/** What a runtime does with a directory. */
export const RuntimeChoice = z.strictObject({
  runtime: z.enum(['containerd', 'CRI-O', 'podman']),
  /** Files that pods are attached with, in order (podman: files that can be requested by name). */
  files: z.array(z.string()),
  /** Why there is none, or what is wrong with the chosen ones. */
  problem: z.optional(z.string()),
  verdicts: z.array(FileVerdict),
});

/** `catena networks`. */
export const NetworkFiles = z.strictObject({
  confDir: z.string(),
  files: z.array(NetworkFile),
  runtimes: z.array(RuntimeChoice),
  /** What the runtimes' own configurations say otherwise. */
  notes: z.array(z.string()),
});

/** `catena ipam why`: an address that is leased. */
export const Lease = z.strictObject({
  network: z.string(),
  address: z.string(),
  /** Absent if the lease does not name its owner. */
  containerId: z.optional(z.string()),
  ifname: z.optional(z.string()),
  /** `new`: written less than a minute ago, an ADD may be running. */
  state: z.enum(['live', 'new', 'unused', 'unknown']),
  /** How that is known. */
  evidence: z.array(z.string()),
  /** ISO time. */
  writtenAt: z.string(),
});

/** `catena ipam ls`, by address. */
export const LeaseList = listOf(Lease);

/** A node that holds blocks of a pool. */
export const PoolHolder = z.strictObject({
  node: z.string(),
  blocks: z.int(),
  /** Of them, those whose node seems to have vanished. */
  orphaned: z.int(),
  /** Of them, addresses that are kept for a claim or for the next pod of a name. */
  kept: z.int(),
});

/** A pool of addresses of a whole cluster. */
export const ClusterPool = z.strictObject({
  network: z.string(),
  pool: z.string(),
  /** Addresses of each family in a block. */
  blockSize: z.int(),
  /** Blocks of the pool, without those in which nothing may be handed out. */
  blocks: z.int(),
  claimed: z.int(),
  /** By name. */
  nodes: z.array(PoolHolder),
});

/** `catena ipam pools`, by network. */
export const ClusterPoolList = listOf(ClusterPool);

/** The findings in one line, and what the exit code says. */
export const DoctorVerdict = z.strictObject({
  /** `to do`: there are errors or warnings. `blind`: there are none, but not everything could be examined. */
  state: z.enum(['healthy', 'blind', 'to do']),
  /** Different fixes of errors and warnings: one command may fix many findings. */
  thingsToDo: z.int(),
  errors: z.int(),
  warnings: z.int(),
  /** Things that could not be examined. */
  unexamined: z.int(),
  notes: z.int(),
  /** Human-readable: `2 things to do (1 error, 1 warning)`. */
  summary: z.string(),
});

/** What one check of the doctor found. */
export const DoctorFinding = z.strictObject({
  /** Stable, since scripts and documents refer to it. */
  id: z.string(),
  severity: z.enum(['error', 'warning', 'unexamined', 'info', 'ok']),
  found: z.string(),
  /** The command that fixes it, or what to look at. */
  mend: z.optional(z.string()),
  /** The attachment that it is about, if it is about one. */
  attachment: z.optional(AttachmentName),
});

/** `catena doctor`, worst first. */
export const Diagnosis = z.strictObject({
  verdict: DoctorVerdict,
  findings: z.array(DoctorFinding),
});

/** A file of the archive. */
export const BundledFile = z.strictObject({
  name: z.string(),
  what: z.string(),
  /** Before compression. */
  bytes: z.int(),
});

/** `catena doctor --bundle`. */
export const Bundle = z.strictObject({
  /** The archive, and its size. */
  file: z.string(),
  bytes: z.int(),
  /** Addresses and names were replaced. */
  anonymous: z.boolean(),
  files: z.array(BundledFile),
});

/** An attachment that had to be deleted. */
export const Recovery = z.strictObject({
  ...ATTACHMENT_ID,
  why: z.string(),
  /** Why that failed; it is retried later. */
  error: z.optional(SpecError),
});

/** A plugin's part of an attachment. */
export const PluginCondition = z.strictObject({
  type: z.string(),
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
  /** `skipped`: its plugins were not called, or not all of them. */
  state: z.enum(['sound', 'mended', 'broken', 'skipped']),
  /** Why it was skipped, or why none of its plugins could be called. */
  why: z.optional(z.string()),
  plugins: z.array(PluginCondition),
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
  /** `found`: with `--dry-run`. `kept`: nothing proves that its namespace is gone, or `why` says what else. `failed`: the next attempt deletes the rest. */
  state: z.enum(['found', 'deleted', 'kept', 'failed']),
  why: z.string(),
  error: z.optional(SpecError),
});

/** `catena gc --gone`. */
export const GoneList = listOf(GoneAttachment);

/** What only a plugin of ours can delete. */
export const PluginParts = z.strictObject({
  type: z.string(),
  /** Position of the plugin in its list, from 0. */
  index: z.int(),
  parts: z.array(z.string()),
});

/** An attachment that other executables shall be able to delete. */
export const Handover = z.strictObject({
  ...ATTACHMENT_ID,
  /** `ready`: nothing that only we can delete. `pending`: there is something. `handed over`: it has been replaced. `refused`: it has not. */
  state: z.enum(['ready', 'pending', 'handed over', 'refused']),
  plugins: z.array(PluginParts),
  /** Why it was refused. */
  why: z.optional(z.string()),
});

/** `catena handover`. */
export const HandoverList = listOf(Handover);

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
  /** What is no file of an installation: the daemon that was ended, with `--purge` the rest. */
  purged: z.optional(z.array(PurgeStep)),
  attachments: z.optional(z.array(Handover)),
  /** Why nothing was removed. */
  refusal: z.optional(z.string()),
});
