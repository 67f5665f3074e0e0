// How long may a slow operation take?

/** Extends a deadline on machines that are known to be slow, such as emulated ones: by the factor `CATENA_TEST_SLOWNESS`. */
export function deadline(ms: number): number {
  return ms * (Number(process.env.CATENA_TEST_SLOWNESS) || 1);
}
