// Has a client gone before its request is carried out?

/**
 * Its runtime was told then that the call failed, and may have called DEL since. Requests like that wait for a daemon that was stopped.
 * That a client has gone is heard right after its request, in the same turn of the loop; this waits for the end of the turn.
 * @param signal aborted when it is heard that the client has gone
 */
export async function hasGone(signal: AbortSignal): Promise<boolean> {
  await new Promise(resolve => setImmediate(resolve));
  return signal.aborted;
}
