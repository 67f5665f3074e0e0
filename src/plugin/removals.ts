// Which host devices are to be deleted, and which work has to wait for that?
import { CniError, describeError, toCniError } from '../cni/errors.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import type { Done } from './define.ts';
import { deleteDevices } from './delete-devices.ts';
import { throwAll, tryAll } from './try-all.ts';

/** A plugin's deferred removal: devices, and the work that must not be done before they are gone. */
export interface Removal {
  readonly devices: readonly Link[];
  readonly then: () => Done;
  /** Name of the plugin, for errors; empty if that is obvious. */
  readonly by: string;
  /** Releases the call's resources, at the very end. */
  readonly close: () => void;
}

/**
 * Deferred removals of several plugins, done together: without a front, the kernel keeps the caller for a grace period (10 to 20 ms)
 * before a device is gone, and as long for a hundred as for one.
 */
export class Removals {
  readonly #waiting: Removal[] = [];

  /** Whether anything waits. */
  get waiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Indexes of the devices to delete. */
  get indexes(): number[] {
    return this.#waiting.flatMap(({ devices: links }) => links.map(({ index }) => index));
  }

  add(removal: Removal): void {
    this.#waiting.push(removal);
  }

  /**
   * Deletes all waiting devices, then does the work that waited for them, in the order of the calls.
   * @param host socket in the namespace of the devices
   * @param removed the devices have already been deleted
   * @throws CniError of the first failure, with the messages of all; everything was tried
   */
  async settle(host: () => NetlinkSocket, removed = false): Promise<void> {
    const problems: unknown[] = [];
    // Work that waited may add more removals.
    for (let done = removed; this.waiting; done = false) {
      const indexes = done ? [] : this.indexes;
      const removals = this.#waiting.splice(0);
      const remove = (): void => (indexes.length ? deleteDevices(host(), indexes) : undefined);
      await settleAll(removals, remove).catch(thrown => problems.push(thrown));
    }
    throwAll(problems);
  }
}

async function settleAll(removals: readonly Removal[], remove: () => void): Promise<void> {
  try {
    await tryAll([remove, ...removals.map(removal => () => finish(removal))]);
  } finally {
    for (const { close } of removals) close();
  }
}

async function finish({ by, then }: Removal): Promise<void> {
  try {
    await then();
  } catch (thrown) {
    if (by === '') throw thrown;
    const { code, details } = toCniError(thrown);
    throw new CniError(code, `${by}: ${describeError(thrown)}`, {
      cause: thrown,
      ...(details ? { details } : {}),
    });
  }
}
