// What could not be measured, and why? The rest of the benchmark continues.

/** One line for each item that could not be measured. */
export const UNMEASURED: string[] = [];

/** Tries something once; a failure is noted, and the item is left out from then on. */
export async function succeeds(what: string, work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    noteUnmeasured(what, error);
    return false;
  }
}

/** Notes what failed, with the first line of the reason. */
export function noteUnmeasured(what: string, error: unknown): void {
  const [reason = ''] = (error instanceof Error ? error.message : String(error)).split('\n');
  UNMEASURED.push(`${what}: ${reason}`);
}

/** The human-readable lines; may be empty. */
export function renderUnmeasured(): string {
  return UNMEASURED.map(line => `not measured: ${line}\n`).join('');
}
