// How do devices of many requests go with one request to the kernel?

/** Deletes devices of the host; false when that failed. */
export type RemoveDevices = (indexes: readonly number[]) => Promise<boolean>;

/**
 * Deletes devices, those of all callers that came while the one before was under way in one go: the kernel waits for a
 * grace period each time, however many devices there are, and meanwhile holds up everybody who changes a device.
 */
export class Reaper {
  readonly #remove: RemoveDevices;
  #next: { indexes: number[]; done: Promise<boolean> } | undefined;
  #underWay: Promise<unknown> = Promise.resolve();

  constructor(remove: RemoveDevices) {
    this.#remove = remove;
  }

  /** @returns whether they are gone, when they are */
  remove(indexes: readonly number[]): Promise<boolean> {
    if (this.#next) {
      this.#next.indexes.push(...indexes);
      return this.#next.done;
    }
    const all = [...indexes];
    const done = this.#underWay.then(() => {
      this.#next = undefined;
      return this.#remove(all);
    });
    this.#next = { indexes: all, done };
    this.#underWay = done.catch(() => {});
    return done;
  }
}
