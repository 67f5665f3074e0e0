// How is each request of a call to the kernel failed once?

/** How many requests in a row may not be reached before the last one was: a call that waits looks more often at one time than at another. */
const NOT_REACHED = 3;

/**
 * Fails the first request, the second, and so on until there are no more. A call that looks who has an address makes requests for each
 * namespace that it sees, so no other test may make any while this one runs: see `describeInOrder` in skip.ts.
 * @param fail has the request of that number fail, from 1 on, and tells what it was; undefined if there were fewer
 * @returns what failed, in order
 */
export async function failInTurn(fail: (request: number) => Promise<string | undefined>): Promise<string[]> {
  const failed: string[] = [];
  for (let request = 1, missed = 0; missed < NOT_REACHED; request++) {
    const what = await fail(request);
    missed = what === undefined ? missed + 1 : 0;
    if (what !== undefined) failed.push(what);
  }
  return failed;
}
