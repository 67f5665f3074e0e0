// How does the page get its data, and keep it fresh while it is looked at?
import { useEffect, useState } from 'preact/hooks';

/** What is known of one path. */
export interface Polled<T> {
  readonly value?: T;
  /** Why the last attempt failed; the value may be older. */
  readonly problem?: string;
  /** The server is there, but the session is over. */
  readonly isOver?: boolean;
}

/** Longer than any answer takes. A tunnel that has ended may leave the browser without a word. */
const ANSWER_MS = 60_000;

/** Keeps a value up to date while the page is visible. `path` undefined: nothing is asked. */
export function usePolled<T>(
  path: string | undefined,
  everyMs: number,
  share: (before: T | undefined, now: T) => T = (_, now) => now,
): Polled<T> {
  const [polled, setPolled] = useState<Polled<T> & { readonly path?: string | undefined }>({});
  useEffect(() => {
    if (path === undefined) return;
    const end = new AbortController();
    let etag = '';
    let value: T | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isAsking = false;
    const ask = async (): Promise<void> => {
      clearTimeout(timer);
      if (document.hidden || isAsking || end.signal.aborted) return;
      isAsking = true;
      const late = new AbortController();
      const limit = setTimeout(() => late.abort(new TypeError('no answer')), ANSWER_MS);
      const signal = AbortSignal.any([end.signal, late.signal]);
      try {
        const headers = etag === '' ? {} : { 'if-none-match': etag };
        const reply = await fetch(`api/${path}`, { headers, cache: 'no-store', signal });
        if (reply.status === 403) return setPolled({ isOver: true, problem: 'This session has ended', path });
        if (reply.status !== 304) {
          if (!reply.ok) throw new Error((await reply.text()).trim());
          etag = reply.headers.get('etag') ?? '';
          value = share(value, (await reply.json()) as T);
        }
        if (value !== undefined) setPolled({ value, path });
      } catch (error) {
        if (end.signal.aborted) return;
        const problem = error instanceof TypeError ? 'The server does not answer' : (error as Error).message;
        setPolled({ ...(value === undefined ? {} : { value }), problem, path });
      } finally {
        clearTimeout(limit);
        isAsking = false;
      }
      if (!end.signal.aborted) timer = setTimeout(ask, everyMs);
    };
    void ask();
    document.addEventListener('visibilitychange', ask, { signal: end.signal });
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, [path, everyMs]);
  // What an earlier path had is not shown for this one.
  return polled.path === path ? polled : {};
}

/** Keeps the objects that have not changed, so that their rows are not drawn again. */
export function shareRows<T>(before: readonly T[], now: readonly T[], keyOf: (row: T) => string): T[] {
  const known = new Map(before.map(row => [keyOf(row), row]));
  return now.map(row => {
    const old = known.get(keyOf(row));
    return old !== undefined && JSON.stringify(old) === JSON.stringify(row) ? old : row;
  });
}
