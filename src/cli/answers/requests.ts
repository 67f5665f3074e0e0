// What do traces look like?
import * as z from 'zod/mini';

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
  link: z.string(),
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
  network: z.string(),
  containerId: z.string(),
  ifname: z.string(),
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
  links: z.array(PluginCall),
  finishes: z.optional(z.array(Finish)),
  result: z.optional(z.record(z.string(), z.unknown())),
  span: z.optional(Span),
});

/** `catena log --requests`, `GET /v1/traces`, oldest first. */
export const RequestList = z.strictObject({
  items: z.array(Request),
});
