// What does the caller of a chain decide, such as plugin directories, deadlines and the container?
import { type AttachmentId, findContainerIdProblem } from '../../cni/attachment.ts';
import { type CniArgs, type Command, findPairProblem } from '../../cni/env.ts';
import { CniError, ErrorCode, invalidConfig, invalidEnvironment } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import type { NetworkPlugins } from '../../cni/plugin-about.ts';
import type { AttachmentKey } from '../../cni/schemas.ts';
import { findIfnameProblem } from '../../net/interface.ts';
import { LONGEST_MS, PLUGIN_DEADLINE_MS } from '../../wait.ts';
import type { Conflist } from '../config/conflist.ts';
import type { isOwnExecutable } from '../config/find-plugin.ts';
import type { KernelTransaction } from './exec-plugin.ts';
import type { Exec, SegmentRunner } from './segment.ts';
import type { PluginSpan } from './trace-context.ts';

/** The interface of a container that a network is attached to. */
export interface Attachment {
  readonly containerId: string;
  /** Path of the network namespace; may be empty on DEL, when it is gone. */
  readonly netns: string;
  readonly ifname: string;
  /** `CNI_ARGS`. */
  readonly args?: CniArgs;
  /** What the runtime offers by capability (`{"portMappings": […]}`). Each plugin gets those its entry declares. */
  readonly capabilityArgs?: JsonObject;
  /** `prevResult` of an ADD's first plugin; none unless given. */
  readonly prevResult?: JsonObject;
}

/** How the call of one plugin went. */
export interface PluginEvent {
  readonly network: string;
  /** The plugin's type, and its index in the list, from 0. */
  readonly plugin: string;
  readonly index: number;
  readonly executable: string;
  readonly verb: Command;
  readonly durationMs: number;
  readonly stderr: string;
  /** What ADD printed, in the version of the list. */
  readonly result?: JsonObject;
  readonly error?: CniError;
  /** Its span in the caller's trace, when `TRACEPARENT` of {@link Runtime.env} names one. */
  readonly span?: PluginSpan;
  /** What it did in the kernel, if {@link RunHooks.tracesKernel} is set and the runner can tell. */
  readonly transactions?: readonly KernelTransaction[];
}

/** How the work went that the plugins of a verb had deferred to its end: removing devices together, and what waited for that. */
export interface FinishEvent {
  readonly network: string;
  readonly verb: Command;
  readonly durationMs: number;
  readonly transactions?: readonly KernelTransaction[];
}

/** Milliseconds that a plugin may take, by verb; a verb that is left out has {@link PLUGIN_DEADLINE_MS}. */
export type Deadlines = Readonly<Partial<Record<Command, number>>>;

/** Where and how plugins run. */
export interface Runtime {
  /** Directories of `CNI_PATH`, in order. */
  readonly pluginDirs: readonly string[];
  /** Directory of the result cache: `CATENA_CNI_CACHE_DIR`, else `/var/lib/cni`. */
  readonly cacheDir?: string;
  /**
   * Directory of the journal, which records what every ADD is about to do and how far it came, so that an ADD that was cut off
   * can be undone. Without one there is no journal, and attachments are remembered by the result cache alone. `catena` uses
   * `CATENA_STATE_DIR`, else `/var/lib/catena`. A lock for each attachment that is worked on is in the run directory, `CATENA_RUN_DIR`,
   * else `/run/catena`; ADD needs to write to it.
   */
  readonly stateDir?: string | undefined;
  /** The runner's name in its records. */
  readonly owner?: string;
  /**
   * Environment that plugins inherit; this process's unless given. A `TRACEPARENT` in it (W3C Trace Context) is passed
   * on with a separate span for every plugin, `TRACESTATE` and `BAGGAGE` unchanged.
   */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Milliseconds each plugin may take, for all verbs or by verb: a duration, at most 2,147,483,647 (24 days); 60,000 unless given. */
  readonly deadlineMs?: number | Deadlines;
  /** When it fires, the running plugin is ended and no other is called; a failed ADD is still undone. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each plugin. What it throws is reported to {@link Runtime.onWarning}, which must not throw. */
  readonly onPlugin?: (event: PluginEvent) => void;
  /** Called with problems that did not stop the verb, such as a record that cannot be read on DEL. */
  readonly onWarning?: (warning: CniError) => void;
  /** Runs plugins instead of subprocesses: for tests, or for plugins that run elsewhere. */
  readonly exec?: Exec;
  /** Finds the executable of a type instead of {@link findPlugin}; throws when there is none. */
  readonly find?: (type: string, dirs: readonly string[]) => string;
  /**
   * Identifies an ADD, for callers that lost the reply and ask again: if the attachment was made by an ADD with this request key,
   * its result is returned and nothing is done. Needs a journal.
   */
  readonly request?: string;
}

/** An attachment that has resources on the node. */
export interface HeldAttachment {
  /** `~` and a digest if the whole id cannot be found. */
  readonly containerId: string;
  readonly ifname: string;
  /** False if only a digest of the container's id is known: DEL cannot be called for it. */
  readonly isNamed: boolean;
  /** Its resources, human-readable. */
  readonly traces: readonly string[];
  /** Why it must be kept unless the caller says otherwise; undefined if it is not in use. */
  readonly inUse: string | undefined;
}

/** Finds what the node holds of attachments to a network, whichever runtime recorded them. */
export type FindHeld = (list: Conflist, known: readonly AttachmentKey[]) => readonly HeldAttachment[];

/** An attachment, where it was made, and what its ADD said of it. */
export interface Made extends AttachmentId {
  readonly netns: string;
  /** Result of the last plugin, in the version that it names. */
  readonly result?: JsonObject | undefined;
}

/** Asks the node itself about one attachment, whatever the records say. */
export interface NodeWitness {
  /**
   * What was made of the attachment in this boot, human-readable: a pair under its name whose other end is in a namespace in
   * use, or a lease. Undefined if there is neither.
   * @param list says where its plugins keep leases
   * @throws CniError, NetlinkError when the node cannot be queried
   */
  findLife(list: NetworkPlugins, id: AttachmentId): Promise<string | undefined>;
  /**
   * Whether the namespace of an attachment has its interface, not one of the same name that belongs to another attachment.
   * @throws Error when that cannot be determined
   */
  hasInterface(attachment: Made): boolean;
}

/** Further options of the command, the daemon and the delegate runner; not part of the library. */
interface RunHooks {
  /**
   * Opens a witness that asks the node itself about an attachment, before it acts on a record of an earlier boot. Without
   * it, only the result cache tells whether another runtime has made the attachment again.
   */
  readonly openWitness?: () => Promise<NodeWitness>;
  /** Runs the plugins; without it each is a separate process, or is passed to {@link Runtime.exec}. */
  readonly segments?: SegmentRunner;
  /** The result of an ADD as it is recorded and returned; what it throws fails the ADD, which is undone. */
  readonly amend?: (result: JsonObject) => JsonObject | Promise<JsonObject>;
  /** Which executables do nothing before they have read their request; this build's unless given. */
  readonly isOwn?: typeof isOwnExecutable;
  /** Called after deferred work was done, if plugins had deferred any to the end of their chain. */
  readonly onFinish?: (event: FinishEvent) => void;
  /** Called when this operation's turn has come, with the milliseconds that it waited for GC or others of its container. */
  readonly onTurn?: (waitedMs: number) => void;
  /** Events include what plugins did in the kernel, as far as known: for our plugins, if a worker serves them. */
  readonly tracesKernel?: boolean;
  /** Variables that a plugin, given by the name of its executable, gets in addition to {@link Runtime.env}. */
  readonly envOf?: (plugin: string) => Readonly<Record<string, string>>;
}

/** {@link Runtime} plus the options that only this project's own programs set. */
export type ChainRuntime = Runtime & RunHooks;

/** The hooks of a chain through which it is watched. */
export type Watch = Pick<ChainRuntime, 'onPlugin' | 'onFinish' | 'onTurn' | 'tracesKernel' | 'envOf'>;

export interface RequestFacts {
  /** `ADD`, `CHECK`, `DEL`, `GC`, `STATUS`; `SET`: a change in place, for which plugins get CHECK. */
  readonly verb: string;
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
  readonly netns: string;
  /** `CNI_ARGS`; the pod's name and namespace are taken from them. */
  readonly args?: CniArgs;
  /**
   * Who serves it: a command, unless given; the daemon, whose workers were already running; or, as `runtime`, the daemon again, where
   * another runtime calls one plugin.
   */
  readonly by?: 'command' | 'daemon' | 'runtime';
  /** Milliseconds that the request was queued in the daemon. */
  readonly queueMs?: number;
}

export interface RequestOutcome {
  readonly result?: JsonObject | undefined;
  readonly error?: unknown;
}

export interface WatchedRequest<Kept = unknown> {
  readonly id: string;
  /** The environment for the chain: the caller's, with this request's own span as the parent if spans are exported. */
  readonly env: NonNullable<Runtime['env']>;
  readonly watch: Watch;
  /** Delivers everything that is known, once; never throws. @returns what is kept of it */
  end(outcome: RequestOutcome): Kept;
}

/** Notified at the start of every request. */
export interface RequestWatcher<Kept = unknown> {
  begin(facts: RequestFacts, env: NonNullable<Runtime['env']>): WatchedRequest<Kept>;
}

/**
 * Whether the namespace of an attachment has that very interface. Without a witness to ask the node, it counts as there.
 * @throws Error when that cannot be determined
 */
export async function hasItsInterface(
  attachment: Made,
  { openWitness }: { readonly openWitness?: (() => Promise<NodeWitness>) | undefined },
): Promise<boolean> {
  return (await openWitness?.())?.hasInterface(attachment) ?? true;
}

/**
 * Milliseconds that a plugin may take for this verb.
 * @throws CniError 7 if one of them is no duration, whichever verb it is for: a failed ADD must not learn of that on its undo
 */
export function deadlineOf({ deadlineMs = PLUGIN_DEADLINE_MS }: Runtime, verb: Command): number {
  const all = typeof deadlineMs === 'number' ? [deadlineMs] : Object.values(deadlineMs);
  const wrong = all.find(ms => ms !== undefined && !(ms >= 0 && ms <= LONGEST_MS));
  if (wrong !== undefined)
    throw invalidConfig(
      `Cannot use ${wrong} as deadlineMs: expected how many milliseconds a plugin may take, 0 to ${LONGEST_MS}; it is a duration, not a time`,
    );
  return typeof deadlineMs === 'number' ? deadlineMs : (deadlineMs[verb] ?? PLUGIN_DEADLINE_MS);
}

/** Adds the directories in which the ADD found its plugins, after the caller's, and takes the one of its entry. */
export function withRecordedDirs<R extends Pick<Runtime, 'pluginDirs'>>(
  runtime: R,
  { pluginDirs, cacheDir }: Pick<Runtime, 'pluginDirs'> & { readonly cacheDir: string },
): R & { readonly cacheDir: string } {
  return { ...runtime, pluginDirs: [...new Set([...runtime.pluginDirs, ...pluginDirs])], cacheDir };
}

/** How an operation holds an attachment. */
export function holdCall(runtime: ChainRuntime, purpose: keyof typeof VERBS) {
  return { ...runtime, purpose, deadlineMs: deadlineOf(runtime, VERBS[purpose]) };
}

/** The verb whose deadline ends the plugins of an operation. */
const VERBS = { add: 'ADD', del: 'DEL', remove: 'DEL', change: 'CHECK', repair: 'CHECK' } as const;

/**
 * Checks the values that become part of paths and of the environment.
 * @throws CniError 3 (no container id), 4 (invalid id, interface name, argument or missing namespace)
 */
export function checkAttachment(
  attachment: Attachment,
  verb: Command,
  { onWarning }: Pick<Runtime, 'onWarning'> = {},
): void {
  const { containerId, ifname, netns, args = [] } = attachment;
  if (containerId === '') throw new CniError(ErrorCode.unknownContainer, 'missing containerID');
  const problem = findContainerIdProblem(containerId);
  if (problem !== undefined) throw invalid('container id', containerId, problem);
  const ifnameProblem = findIfnameProblem(ifname);
  if (ifnameProblem !== undefined) throw invalid('interface name', ifname, ifnameProblem);
  if (netns === '' && verb !== 'DEL') throw invalid('network namespace', netns, `${verb} needs its path`);
  for (const [key, value] of args) {
    const pairProblem = findPairProblem(key, value);
    if (pairProblem !== undefined) throw invalid('CNI_ARGS pair', `${key}=${value}`, pairProblem);
    if (value.includes('='))
      onWarning?.(
        invalid('CNI_ARGS pair', `${key}=${value}`, 'most plugins cannot read a value that contains "="'),
      );
  }
}

function invalid(what: string, value: string, problem: string): CniError {
  return invalidEnvironment(`Cannot use ${what} ${JSON.stringify(value)}: ${problem}`, {
    details: value,
  });
}
