// How does repair leave alone what is intact?

/** Puts something back if the check finds that it is missing or wrong. */
export function mend(check: () => void, putBack: () => void): void {
  try {
    check();
  } catch {
    // Whatever differs: CHECK reports it if it still does afterwards.
    putBack();
  }
}
