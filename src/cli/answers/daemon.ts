// What is printed about processes that serve, and about requests?
import * as z from 'zod/mini';
import { ATTACHMENT_ID, listOf } from './attachment.ts';

/** What a daemon answers to a ping. */
export const PingReply = z.strictObject({
  version: z.string(),
  /** Identity of its executable. */
  executable: z.string(),
  pid: z.int(),
  /** Requests in progress. */
  running: z.int(),
  /** Requests that wait for their turn. */
  queued: z.int(),
  uptimeSeconds: z.int(),
});

/** `catena daemon --ping`. */
export const PingAnswer = z.strictObject({
  /** `alive`: it serves this executable. `other build`: it declines its calls. `absent`: none listens. `silent`: one has not answered in time. */
  state: z.enum(['alive', 'other build', 'absent', 'silent']),
  reply: z.optional(PingReply),
});

/** What a daemon and its clients have in common. */
export const DaemonPlace = z.strictObject({
  /** Identity of the executable. */
  executable: z.string(),
  /** Network namespace. */
  network: z.string(),
  /** Mount namespace. */
  mount: z.string(),
});

/** The processes that serve plugins. */
export const WorkerPool = z.strictObject({
  workers: z.int(),
  busy: z.int(),
});

/** An attachment that is not as its ADD made it. */
export const Drift = z.strictObject({
  ...ATTACHMENT_ID,
  /** What CHECK reports. */
  problem: z.string(),
  /** ISO time. */
  since: z.string(),
});

/** The watch over attachments. */
export const WatchState = z.strictObject({
  policy: z.enum(['off', 'observe', 'repair']),
  /** Number of attachments that are watched. */
  attachments: z.int(),
  /** When an attachment was last checked, an ISO time. */
  lastCheck: z.optional(z.string()),
  drifted: z.array(Drift),
  /** Those that repairs could not put right, or that are damaged again each time. */
  givenUp: z.array(Drift),
  /** Attachments that outlived their namespace or an earlier boot. */
  outlived: z.int(),
  /** How many times notifications were lost. */
  lost: z.int(),
  /** Checks by outcome, since the daemon began to watch. */
  checks: z.optional(z.record(z.string(), z.number())),
  /** Repairs by outcome. */
  repairs: z.optional(z.record(z.string(), z.number())),
  /** Deletions of those that outlived their namespace, by outcome. */
  deletions: z.optional(z.record(z.string(), z.number())),
});

/** Calls that were declined for one reason. */
export const DeclinedCalls = z.looseObject({
  count: z.int(),
});

/** What a daemon says about itself; one of another build may say less. */
const STATE = {
  version: z.optional(z.string()),
  /** Path of its executable when it was started. */
  program: z.optional(z.string()),
  place: z.optional(DaemonPlace),
  startedBy: z.optional(z.enum(['command', 'systemd', 'on-demand'])),
  sockets: z.optional(z.array(z.string())),
  uptimeSeconds: z.optional(z.number()),
  /** Seconds without a request after which it ends. */
  idleExitSeconds: z.optional(z.number()),
  /** Requests in progress. */
  running: z.optional(z.int()),
  /** Requests that wait for their turn. */
  queued: z.optional(z.int()),
  /** Requests since it was started. */
  served: z.optional(z.int()),
  pool: z.optional(WorkerPool),
  /** Why it serves no calls now. */
  problem: z.optional(z.string()),
  watch: z.optional(WatchState),
  /** By reason. */
  declined: z.optional(z.record(z.string(), DeclinedCalls)),
};

/** `GET /v1/state`. */
export const DaemonState = z.looseObject({
  pid: z.int(),
  ...STATE,
});

/** `catena daemon --status`. */
export const DaemonStatus = z.looseObject({
  /** As `catena daemon --ping` says it. */
  state: z.enum(['alive', 'absent', 'silent']),
  pid: z.optional(z.int()),
  ...STATE,
});

/** `catena daemon --stop`. */
export const DaemonEnd = z.strictObject({
  /** A daemon was running, and has ended. */
  stopped: z.boolean(),
  pid: z.optional(z.int()),
  /** Why it has not ended. */
  problem: z.optional(z.string()),
});

/** `catena ui`, once it listens. */
export const UiAddress = z.strictObject({
  /** Works once. */
  url: z.string(),
});

/** `POST /v1/stop` and `/v1/handover`: the process that is about to end. */
export const DaemonProcess = z.strictObject({
  pid: z.int(),
});

/** A request to the kernel, or to the iptables programs. */
export const KernelTransaction = z.strictObject({
  /** `rtnetlink`, `netfilter`; `iptables` for its programs. */
  family: z.string(),
  /** What was requested, human-readable. */
  what: z.string(),
  /** Milliseconds after the call's start. */
  startMs: z.number(),
  durationMs: z.number(),
  /** Why the kernel refused: `ENODEV`. The plugin may have expected it. */
  error: z.optional(z.string()),
});

/** A span of OpenTelemetry; the first one of a trace has no parent. */
export const Span = z.strictObject({
  traceId: z.string(),
  spanId: z.string(),
  parentSpanId: z.optional(z.string()),
  sampled: z.boolean(),
});

/** One call of a plugin. */
export const PluginCall = z.strictObject({
  network: z.string(),
  type: z.string(),
  /** Position of the plugin in its list, from 0. */
  index: z.int(),
  executable: z.string(),
  verb: z.string(),
  /** Milliseconds after the start of the request. */
  startMs: z.number(),
  durationMs: z.number(),
  /** 0 for success, else an error code of the protocol. */
  code: z.int(),
  message: z.optional(z.string()),
  details: z.optional(z.string()),
  /** The end of its standard error. */
  stderr: z.optional(z.string()),
  /** The result that ADD printed. */
  result: z.optional(z.record(z.string(), z.unknown())),
  span: z.optional(Span),
  /** Its kernel transactions, as far as they are known. */
  transactions: z.optional(z.array(KernelTransaction)),
});

/** The deferred removals of a network's plugins, after the last plugin. */
export const Finish = z.strictObject({
  network: z.string(),
  verb: z.string(),
  startMs: z.number(),
  durationMs: z.number(),
  transactions: z.optional(z.array(KernelTransaction)),
});

/** `catena log <id>`, `GET /v1/traces/<id>`: one finished request. Secrets are masked. */
export const Request = z.strictObject({
  /** Ids sort by time. */
  id: z.string(),
  traceId: z.optional(z.string()),
  verb: z.string(),
  ...ATTACHMENT_ID,
  netns: z.string(),
  podNamespace: z.optional(z.string()),
  podName: z.optional(z.string()),
  args: z.optional(z.record(z.string(), z.string())),
  /** ISO time. */
  startedAt: z.string(),
  durationMs: z.number(),
  queueMs: z.optional(z.number()),
  /** Milliseconds spent waiting for other requests of the same container, or for a GC. */
  lockMs: z.optional(z.number()),
  /** 0 for success, else an error code of the protocol. */
  code: z.int(),
  message: z.optional(z.string()),
  details: z.optional(z.string()),
  /** Served by the daemon, whose workers were already running. */
  warm: z.boolean(),
  plugins: z.array(PluginCall),
  finishes: z.optional(z.array(Finish)),
  result: z.optional(z.record(z.string(), z.unknown())),
  span: z.optional(Span),
});

/** `catena log --requests`, `GET /v1/traces`, oldest first. */
export const RequestList = listOf(Request);
