// How does a test wait for something that happens elsewhere?

const DEADLINE_MS = 20_000;
const EVERY_MS = 5;

/** Looks until it is so. @throws Error when it is not within the time, 20 seconds unless given */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  { withinMs = DEADLINE_MS, everyMs = EVERY_MS } = {},
): Promise<void> {
  const giveUpAt = performance.now() + withinMs;
  while (!(await isSo())) {
    if (performance.now() > giveUpAt) throw new Error(`Gave up waiting until ${isSo}`);
    await Bun.sleep(everyMs);
  }
}
