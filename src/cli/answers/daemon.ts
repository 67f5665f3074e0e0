// What is printed about processes that serve?
import * as z from 'zod/mini';

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
  network: z.string(),
  containerId: z.string(),
  ifname: z.string(),
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
