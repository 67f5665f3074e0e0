// How long may a slow operation take?
import os from 'node:os';

/** Work that waits for a core makes everything late; beyond this factor, waiting longer would help nothing. */
const MOST_LOAD = 8;

/**
 * Extends a deadline where it would otherwise tell how busy the machine is, not what a test asks: by the number of processes that
 * want to run, per core, and by {@link stretched}.
 */
export function deadline(ms: number): number {
  const [load = 0] = os.loadavg();
  return stretched(ms) * Math.min(MOST_LOAD, Math.max(1, load / os.availableParallelism()));
}

/** Extends a time on machines that are known to be slow, such as emulated ones: by the factor `CATENA_TEST_SLOWNESS`. */
export function stretched(ms: number): number {
  return ms * (Number(process.env.CATENA_TEST_SLOWNESS) || 1);
}
