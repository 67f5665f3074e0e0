// How long may something take that takes long?

/** Stretches a deadline on machines that are known to be slow, such as emulated ones: `CATENA_TEST_SLOWNESS` times. */
export function deadline(ms: number): number {
  return ms * (Number(process.env.CATENA_TEST_SLOWNESS) || 1);
}
