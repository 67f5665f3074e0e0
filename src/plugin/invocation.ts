// What goes into one call of a link, and what comes out?
import type { Log } from '../log.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { PluginDefinition } from './define.ts';
import type { Removals } from './removals.ts';

/** One invocation of a link: what a process gets from its parent. */
export interface Invocation {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Read only when the command needs it: VERSION must answer without. */
  readonly readRequest: () => string;
  /** What a process that serves many calls keeps between them; nothing in one that serves a single call. */
  readonly workplace?: Workplace | undefined;
}

/** Kept from one call to the next by a process that serves many. */
export interface Workplace {
  /** Sockets in the namespace of the process. */
  readonly sockets: HostSockets;
  /** Takes removals that may wait until the caller has called every link; DEL and GC then do them together. */
  readonly removals: Removals;
}

/** Sockets in the namespace of the process, opened when first asked for. */
export interface HostSockets {
  /** rtnetlink. */
  readonly route: NetlinkSocket;
  /** nf_tables. */
  readonly netfilter: NetlinkSocket;
}

/** What goes back. Log lines wait in `log` until someone flushes it. */
export interface Reply {
  readonly exitCode: number;
  readonly stdout: string;
  readonly log: Log;
}

/** Finds another link of this executable by name. */
export type Siblings = (name: string) => Promise<PluginDefinition> | undefined;

/** Calls another link of this executable in this process; undefined when it has none of that name. */
export type CallSibling = (name: string, invocation: Invocation) => Promise<Reply> | undefined;
