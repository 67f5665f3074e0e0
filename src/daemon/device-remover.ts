// How are devices of many requests deleted with one request to the kernel?

/** Deletes devices of the host; false if that failed. */
export type RemoveDevices = (indexes: readonly number[]) => Promise<boolean>;

/**
 * Deletes devices. All requests that arrive while a deletion is in progress are combined into the next one: a deletion costs the
 * kernel a grace period, and us a process, however many devices it is of.
 */
export class DeviceRemover {
  readonly #remove: RemoveDevices;
  #next: { indexes: number[]; done: Promise<boolean> } | undefined;
  #underWay: Promise<unknown> = Promise.resolve();

  constructor(remove: RemoveDevices) {
    this.#remove = remove;
  }

  /** @returns whether the devices were deleted, once they are */
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
