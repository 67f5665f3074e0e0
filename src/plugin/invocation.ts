// What are the inputs and outputs of one plugin call?
import type { Snapshot } from '../journal/snapshot.ts';
import type { Log } from '../log.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { PluginDefinition } from './define.ts';
import type { Removals } from './removals.ts';

/** One invocation of a plugin: what a process gets from its parent. */
export interface Invocation {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Called only if the command needs it: VERSION must reply without. */
  readonly readRequest: () => string;
  /** What a worker keeps between calls; undefined in a process that serves a single call. */
  readonly worker?: WorkerState | undefined;
  /** Set if another plugin in this process makes the call as a part of its own. */
  readonly outer?: OuterCall | undefined;
}

/** What a call inherits from the one that it is a part of. */
export interface OuterCall {
  /** The snapshot that GC uses; undefined for other verbs. */
  readonly snapshot: Snapshot | undefined;
}

/** Kept from one call to the next by a worker. */
export interface WorkerState {
  /** Sockets in the namespace of the process. */
  readonly sockets: HostSockets;
  /** Collects removals to be deferred until the caller has called every plugin; DEL and GC then do them together. */
  readonly removals: Removals;
}

/** Sockets in the namespace of the process, opened on first use. */
export interface HostSockets {
  /** rtnetlink. */
  readonly route: NetlinkSocket;
  /** nf_tables. */
  readonly netfilter: NetlinkSocket;
}

/** The reply. Log lines stay in `log` until they are flushed. */
export interface Reply {
  readonly exitCode: number;
  readonly stdout: string;
  readonly log: Log;
}

/** Finds another plugin of this executable by name. */
export type PluginLookup = (name: string) => Promise<PluginDefinition> | undefined;

/** Calls another plugin of this executable in this process; undefined if there is none of that name. */
export type CallPlugin = (name: string, invocation: Invocation) => Promise<Reply> | undefined;
