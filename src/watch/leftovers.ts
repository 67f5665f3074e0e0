// When are attachments deleted whose namespace ended without a DEL?

import { deleteClaimed } from '../chain/records/delete-attachment.ts';
import { type ChainRuntime, deadlineOf } from '../chain/run/runtime.ts';
import { describeError } from '../cni/errors.ts';
import { claimRecord } from '../journal/claim.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import type { LogFields, LogLevel } from '../log.ts';
import { hostDevicesOf, type WatchedAttachment } from './attachments.ts';
import { listDeviceNames } from './sources.ts';

/** Deletions per round: none of them is urgent. */
const AT_ONCE = 8;

/**
 * Deletes attachments whose namespace has been gone for a while. Their runtime may still call DEL, which then finds nothing to do.
 * Only those that have a record: what another runtime keeps about its own is its own affair. A namespace may exist where this
 * process cannot see its path, so one of the attachment's devices on the host has to be missing, too: the kernel deletes a pair with
 * the namespace that one end is in.
 */
export class Leftovers {
  readonly #runtime: ChainRuntime;
  readonly #log: (level: LogLevel, message: string, fields?: LogFields) => void;
  readonly #since = new Map<string, number>();

  constructor(runtime: ChainRuntime, log: (level: LogLevel, message: string, fields?: LogFields) => void) {
    this.#runtime = runtime;
    this.#log = log;
  }

  /** Attachments whose namespace is gone, as of the last round. */
  get count(): number {
    return this.#since.size;
  }

  /**
   * @param gone attachments whose namespace does not exist now
   * @param graceMs how long it must have been gone; 0: nothing is deleted
   */
  async collect(gone: readonly WatchedAttachment[], graceMs: number): Promise<void> {
    const now = performance.now();
    const keys = new Set(gone.map(({ key }) => key));
    for (const key of this.#since.keys()) if (!keys.has(key)) this.#since.delete(key);
    for (const { key } of gone) if (!this.#since.has(key)) this.#since.set(key, now);
    if (graceMs === 0) return;
    const due = gone.filter(({ key }) => now - (this.#since.get(key) ?? now) >= graceMs);
    const devices = due.length ? listDeviceNames() : new Set<string>();
    for (const one of due.filter(one => isOver(one, devices)).slice(0, AT_ONCE)) await this.#delete(one);
  }

  async #delete({ id, key, recorded }: WatchedAttachment): Promise<void> {
    if (recorded === undefined || this.#runtime.signal?.aborted) return;
    const { network, containerId, ifname } = id;
    const fields = { network, containerId, ifname };
    const runtime = { ...this.#runtime, stateDir: recorded.stateDir };
    const isStill = (record: AttachmentRecord): boolean =>
      record.phase === 'attached' &&
      record.runner.op === recorded.record.runner.op &&
      compareNetns(record.netns, record) !== 'same';
    try {
      const claim = claimRecord(recorded.stateDir, id, isStill, 'DEL', deadlineOf(runtime, 'DEL'));
      if (claim === undefined || 'holder' in claim) return;
      await deleteClaimed(claim, runtime);
      this.#since.delete(key);
      this.#log('info', 'deleted an attachment whose namespace had ended without a DEL', fields);
    } catch (error) {
      this.#log('warn', 'cannot delete an attachment whose namespace has ended', {
        ...fields,
        problem: describeError(error),
      });
    }
  }
}

/** Whether a device of the attachment on the host is missing. Without any, nothing proves that its namespace is gone. */
function isOver({ recorded, known }: WatchedAttachment, devices: ReadonlySet<string>): boolean {
  if (recorded === undefined || recorded.record.adopted === true) return false;
  return hostDevicesOf(known.result).some(name => !devices.has(name));
}
