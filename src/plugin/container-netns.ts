// How long does the namespace of a container stay open?
//
// The calls of a segment are for one attachment. Each plugin would open the same namespace and a socket in it, and find out whose
// namespace it is, within milliseconds. So the first one's are kept until the segment ends. While a namespace is open, the kernel
// gives its device and inode number to no other: if the path still leads to them, it is the same namespace.
import { statSync } from 'node:fs';
import { NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, inNetns, type Netns, openNetns, sameNetns } from '../sys/netns.ts';

/** A namespace that stays open until its last user has released it. */
export class ContainerNetns {
  readonly netns: Netns;
  #socket: NetlinkSocket | undefined;
  #users = 1;

  /** @throws what {@link openNetns} throws */
  constructor(path: string) {
    this.netns = openNetns(path);
  }

  /** rtnetlink in the namespace. */
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
  try {
    return sameNetns(statSync(path), netns);
  } catch {
    return false;
  }
}
