// What does the caller of a chain decide: where executables are, how long they may take, for which container?
import { type CniArgs, renderCniArgs } from '../cni/cni-args.ts';
import { cniCacheDir } from '../cni/directories.ts';
import { type Command, findContainerIdProblem } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { processOf, RUNNER_VARIABLE } from '../journal/runner.ts';
import { findIfnameProblem } from '../net/ifname.ts';
import type { Exec } from './exec.ts';
import type { ExecOutcome, KernelTransaction, StartPlugin } from './exec-plugin.ts';
import type { LinkSpan } from './trace-context.ts';

/** The interface of a container that a network is attached to. */
export interface Attachment {
  readonly containerId: string;
  /** Path of the network namespace; may be empty on DEL, when it is gone. */
  readonly netns: string;
  readonly ifname: string;
  /** `CNI_ARGS`. */
  readonly args?: CniArgs;
  /** What the runtime offers by capability (`{"portMappings": […]}`); each link gets what its entry declares. */
  readonly capabilityArgs?: JsonObject;
  /** What the first link of an ADD gets as the result of one before it; none unless given. */
  readonly prevResult?: JsonObject;
}

/** How one link did. */
export interface LinkEvent {
  readonly network: string;
  /** The link's type, and where it stands in the list, from 0. */
  readonly link: string;
  readonly index: number;
  readonly executable: string;
  readonly verb: Command;
  readonly durationMs: number;
  readonly stderr: string;
  /** What ADD printed, in the version of the list. */
  readonly result?: JsonObject;
  readonly error?: CniError;
  /** Its place in the caller's trace, when `TRACEPARENT` of {@link Runtime.env} names one. */
  readonly span?: LinkSpan;
  /** What it did in the kernel, where {@link Runtime.noted} asked for it and whoever ran it could tell. */
  readonly transactions?: readonly KernelTransaction[];
}

/** How the work went that links of a verb had put off until its end: devices deleted together, and what waited for that. */
export interface FinishEvent {
  readonly network: string;
  readonly verb: Command;
  readonly durationMs: number;
  readonly transactions?: readonly KernelTransaction[];
}

/** Milliseconds that a link may take, by verb; a verb that is left out has {@link DEFAULT_DEADLINE_MS}. */
export type Deadlines = Readonly<Partial<Record<Command, number>>>;

/** Time for a link to run, unless the caller says otherwise. */
export const DEFAULT_DEADLINE_MS = 60_000;

/** Where and how links run. */
export interface Runtime {
  /** Directories of `CNI_PATH`, in order. */
  readonly pluginDirs: readonly string[];
  /** Directory of the result cache: `CATENA_CNI_CACHE_DIR`, else `/var/lib/cni`. */
  readonly cacheDir?: string;
  /**
   * Directory of the journal: what every ADD is about to do and how far it came, so that whatever is cut off can be taken
   * back. Without one there is no journal, and the result cache alone remembers attachments. `catena` uses
   * `CATENA_STATE_DIR`, else `/var/lib/catena`.
   */
  readonly stateDir?: string | undefined;
  /** Who runs the chain, as its records say. */
  readonly owner?: string;
  /**
   * Environment that links inherit; this process's unless given. A `TRACEPARENT` in it (W3C Trace Context) is passed
   * on with a span of its own for every link, `TRACESTATE` and `BAGGAGE` as they are.
   */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Milliseconds each link may take, for all verbs or by verb; 60,000 unless given. */
  readonly deadlineMs?: number | Deadlines;
  /** When it fires, the running link is ended and no other is called; a failed ADD is undone all the same. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each link. */
  readonly onLink?: (event: LinkEvent) => void;
  /** Called after what the links had put off was done, if they had. */
  readonly onFinish?: (event: FinishEvent) => void;
  /** Have events say what links did in the kernel: known of our own where a worker serves them. */
  readonly noted?: boolean;
  /** Variables that a link, given by the name of its executable, gets besides {@link Runtime.env}. */
  readonly envOf?: (link: string) => Readonly<Record<string, string>>;
  /** Called when it is this operation's turn, with the milliseconds that it waited for others of its container, or GC. */
  readonly onTurn?: (waitedMs: number) => void;
  /** Told what did not keep the verb from going on, such as a record that cannot be read on DEL. */
  readonly onWarning?: (warning: CniError) => void;
  /** Runs links in place of subprocesses: for tests, or for links that live elsewhere. */
  readonly exec?: Exec;
  /** Finds the executable of a type in place of {@link findPlugin}; throws when there is none. */
  readonly find?: (type: string, dirs: readonly string[]) => string;
  /** How a link is started, a step below `exec`: it may be started before its request is there. */
  readonly start?: StartPlugin;
  /** What `start` makes of our own executables serves one request after the other, in the order in which they were sent. */
  readonly inOrder?: boolean;
  /**
   * Called after the last link of a verb, for what links served by `start` may have put off until then. What it returns
   * counts like a link's outcome; undefined when there was nothing.
   */
  readonly finish?: () => Promise<Omit<ExecOutcome, 'durationMs'> | undefined>;
  /**
   * Names an ADD, for callers that lost the answer and ask again: when the attachment stands by an ADD of that name, its
   * result is returned and nothing is done. Needs a journal.
   */
  readonly request?: string;
  /** Which executables do nothing before they have read their request, so that they may be started ahead of it. */
  readonly isOwn?: (path: string) => boolean;
}

/** Directory of the result cache. */
export function cacheDirOf({ cacheDir, env }: Pick<Runtime, 'cacheDir' | 'env'>): string {
  return cacheDir || cniCacheDir(env);
}

/** Milliseconds that a link may take for this verb. */
export function deadlineOf({ deadlineMs = DEFAULT_DEADLINE_MS }: Runtime, verb: Command): number {
  return typeof deadlineMs === 'number' ? deadlineMs : (deadlineMs[verb] ?? DEFAULT_DEADLINE_MS);
}

/**
 * The environment of a link: the caller's, with the six variables of the protocol always set (SPEC "Parameters"); with a
 * journal also whose it is.
 */
export function linkEnv(
  verb: Command,
  runtime: Runtime,
  attachment?: Attachment,
): Record<string, string | undefined> {
  return {
    ...(runtime.env ?? process.env),
    CNI_COMMAND: verb,
    CNI_CONTAINERID: attachment?.containerId ?? '',
    CNI_NETNS: attachment?.netns ?? '',
    CNI_IFNAME: attachment?.ifname ?? '',
    CNI_ARGS: renderCniArgs(attachment?.args ?? []),
    CNI_PATH: runtime.pluginDirs.join(':'),
    ...(runtime.stateDir === undefined ? {} : { [RUNNER_VARIABLE]: processOf() }),
  };
}

/**
 * Checks what becomes part of paths and of the environment.
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
    if (key === '' || /[;=\0]/.test(key) || /[;\0]/.test(value)) {
      throw invalid('CNI_ARGS pair', `${key}=${value}`, 'neither half may hold ";", nor the key "="');
    }
    if (value.includes('='))
      onWarning?.(
        invalid('CNI_ARGS pair', `${key}=${value}`, 'most plugins cannot read a value that holds "="'),
      );
  }
}

function invalid(what: string, value: string, problem: string): CniError {
  return new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot use ${what} ${JSON.stringify(value)}: ${problem}`,
    {
      details: value,
    },
  );
}
