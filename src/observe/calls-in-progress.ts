// For which containers is an ADD or a DEL in progress?
import type { RequestWatcher } from './watcher.ts';

/** Verbs that change no attachment of theirs. */
const READING = new Set(['CHECK', 'STATUS', 'GC', 'VERSION']);
/** Runtimes give up long before that. */
const LONGEST_MS = 10 * 60_000;
const YOUNG_MS = 1_000;

/** Knows the requests that a daemon serves at present. */
export class CallsInProgress {
  /** By container: when each of its requests began. */
  readonly #begun = new Map<string, Set<{ readonly at: number }>>();

  has(containerId: string): boolean {
    const since = performance.now() - LONGEST_MS;
    return [...(this.#begun.get(containerId) ?? [])].some(({ at }) => at > since);
  }

  /** Whether any has begun a moment ago: one that takes longer waits for something itself. */
  hasYoung(): boolean {
    const since = performance.now() - YOUNG_MS;
    return [...this.#begun.values()].some(all => [...all].some(({ at }) => at > since));
  }

  /** The same watcher, whose requests are noted. */
  noting(watcher: RequestWatcher): RequestWatcher {
    return {
      begin: (facts, env) => {
        const request = watcher.begin(facts, env);
        const { verb, containerId } = facts;
        if (containerId === '' || READING.has(verb)) return request;
        const forget = this.#note(containerId);
        return {
          ...request,
          end(outcome) {
            forget();
            return request.end(outcome);
          },
        };
      },
    };
  }

  #note(containerId: string): () => void {
    const one = { at: performance.now() };
    const begun = this.#begun.get(containerId) ?? new Set();
    this.#begun.set(containerId, begun.add(one));
    return () => {
      begun.delete(one);
      if (begun.size === 0 && this.#begun.get(containerId) === begun) this.#begun.delete(containerId);
    };
  }
}
