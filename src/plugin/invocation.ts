// What does a plugin get besides its request, and what does it reply?

import type { Snapshot } from '../attachments/snapshot.ts';
import type { Invocation, Reply } from '../cni/invocation.ts';
import type { Log } from '../log.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { SegmentNetns } from './container-netns.ts';
import type { PluginDefinition } from './define.ts';
import type { Removals } from './removals.ts';

/** An invocation as {@link serve} gets it: its standard input is read only if the verb needs it, since VERSION has none. */
export interface ServedCall extends Pick<Invocation, 'env'> {
  readonly readStdin: () => string;
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
  /** The namespace of the container, for the calls of one segment. */
  readonly netns: SegmentNetns;
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

/** The reply. Log lines, which become its standard error, stay in `log` until they are flushed. */
export interface ServedReply extends Omit<Reply, 'stderr'> {
  readonly log: Log;
}

/** Finds another plugin of this executable by name. */
export type PluginLookup = (name: string) => Promise<PluginDefinition> | undefined;

/** Calls another plugin of this executable in this process; undefined if there is none of that name. */
export type CallPlugin = (name: string, call: ServedCall) => Promise<ServedReply> | undefined;
