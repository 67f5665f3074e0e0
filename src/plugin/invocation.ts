// What does a plugin get besides its request, and how long does the container's namespace stay open?
//
// The calls of a segment are for one attachment. Each plugin would open the same namespace and a socket in it, and find out whose
// namespace it is, within milliseconds. So the first one's are kept until the segment ends. While a namespace is open, the kernel
// gives its device and inode number to no other: if the path still leads to them, it is the same namespace.

import { statSync } from 'node:fs';
import type { Snapshot } from '../attachments/snapshot.ts';
import { attempt } from '../cni/errors.ts';
import type { Invocation, Reply } from '../cni/invocation.ts';
import type { Log } from '../log.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, inNetns, type Netns, openNetns, sameNetns } from '../sys/netns.ts';
import type { PluginDefinition } from './define.ts';
import type { Removals } from './delete-devices.ts';

/** A namespace that stays open until its last user has released it. */
export class ContainerNetns {
  readonly netns: Netns;
  #socket: NetlinkSocket | undefined;
  #users = 1;

  /** @throws what {@link openNetns} throws */
  constructor(path: string) {
    this.netns = openNetns(path);
  }

  get socket(): NetlinkSocket {
    this.#socket ??= inNetns(this.netns, () => new NetlinkSocket(NETLINK_ROUTE));
    return this.#socket;
  }

  /** Adds a user, who has to release it too. */
  share(): this {
    this.#users += 1;
    return this;
  }

  release(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    this.#socket?.close();
    closeNetns(this.netns);
  }
}

/** The namespace that the plugins of one segment work in. */
export class SegmentNetns {
  #current: ContainerNetns | undefined;

  /**
   * The namespace at the path, which the caller has to release.
   * @throws what {@link openNetns} throws
   */
  open(path: string): ContainerNetns {
    if (this.#current === undefined || !isAt(path, this.#current.netns)) {
      const fresh = new ContainerNetns(path);
      this.close();
      this.#current = fresh;
    }
    return this.#current.share();
  }

  /** Called at the end of the segment. Calls that still use the namespace keep it open. */
  close(): void {
    this.#current?.release();
    this.#current = undefined;
  }
}

function isAt(path: string, netns: Netns): boolean {
  const found = attempt(() => statSync(path));
  return found !== undefined && sameNetns(found, netns);
}

/** An invocation as {@link serve} gets it: its standard input is read only if the verb needs it, since VERSION has none. */
export interface ServedCall extends Pick<Invocation, 'env'> {
  readonly readStdin: () => string;
  /** What a worker keeps between calls; undefined in a process that serves a single call. */
  readonly worker?: WorkerState | undefined;
  /** Set if another plugin in this process makes the call as a part of its own; with the snapshot that GC uses, undefined for other verbs. */
  readonly outer?: { readonly snapshot: Snapshot | undefined } | undefined;
}

/** Kept from one call to the next by a worker. */
export interface WorkerState {
  readonly sockets: HostSockets;
  /** The namespace of the container, for the calls of one segment. */
  readonly netns: SegmentNetns;
  /** Collects removals to be deferred until the caller has called every plugin; DEL and GC then do them together. */
  readonly removals: Removals;
}

/** Sockets in the namespace of the process, opened on first use. */
export class HostSockets {
  #route: NetlinkSocket | undefined;
  #netfilter: NetlinkSocket | undefined;

  get route(): NetlinkSocket {
    this.#route ??= new NetlinkSocket(NETLINK_ROUTE);
    return this.#route;
  }

  get netfilter(): NetlinkSocket {
    this.#netfilter ??= new NetlinkSocket(NETLINK_NETFILTER);
    return this.#netfilter;
  }

  /** Those of a worker stay open: closing one for nf_tables after a deletion waits until the kernel has freed it (10 to 20 ms). */
  close(): void {
    this.#route?.close();
    this.#netfilter?.close();
  }
}

/** The reply. Log lines, which become its standard error, stay in `log` until they are flushed. */
export interface ServedReply extends Omit<Reply, 'stderr'> {
  readonly log: Log;
}

export type PluginLookup = (name: string) => Promise<PluginDefinition> | undefined;

/** Calls another plugin of this executable in this process; undefined if there is none of that name. */
export type CallPlugin = (name: string, call: ServedCall) => Promise<ServedReply> | undefined;
