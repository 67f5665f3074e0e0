// How does an hour pass in a minute?

/** A clock that stands still while anything runs, and then goes to the next thing that is due. */
export interface VirtualTime {
  /** Seconds since its start. */
  now(): number;
  /** Does something later. */
  after(seconds: number, work: () => void): void;
  /** Waits. */
  sleep(seconds: number): Promise<void>;
  /** Lets everything happen up to a time. @param between called after each moment */
  runUntil(seconds: number, between?: () => void): Promise<void>;
}

/** One that starts at 0. */
export function virtualTime(): VirtualTime {
  let now = 0;
  let count = 0;
  const due: { readonly at: number; readonly order: number; readonly work: () => void }[] = [];
  const isBefore = (a: number, b: number): boolean => {
    const [one, other] = [due[a], due[b]];
    if (one === undefined || other === undefined) return false;
    return one.at < other.at || (one.at === other.at && one.order < other.order);
  };
  const swap = (a: number, b: number): void => {
    const [one, other] = [due[a], due[b]];
    if (one && other) [due[a], due[b]] = [other, one];
  };
  function push(at: number, work: () => void): void {
    due.push({ at, order: ++count, work });
    for (let i = due.length - 1; i > 0 && isBefore(i, (i - 1) >> 1); i = (i - 1) >> 1) swap(i, (i - 1) >> 1);
  }
  function pop(): (typeof due)[number] | undefined {
    swap(0, due.length - 1);
    const first = due.pop();
    for (let i = 0; ; ) {
      const [left, right] = [2 * i + 1, 2 * i + 2];
      const least = isBefore(right, left) ? right : left;
      if (!isBefore(least, i)) return first;
      swap(least, i);
      i = least;
    }
  }
  const after = (seconds: number, work: () => void): void => push(now + Math.max(seconds, 0), work);
  return {
    now: () => now,
    after,
    sleep: seconds => new Promise(resolve => after(seconds, resolve)),
    async runUntil(seconds, between) {
      for (;;) {
        const first = due[0];
        if (first === undefined || first.at > seconds) break;
        pop();
        now = first.at;
        first.work();
        // Everything that was waiting goes on until it waits again.
        await new Promise(resolve => setImmediate(resolve));
        between?.();
      }
      now = seconds;
    },
  };
}
