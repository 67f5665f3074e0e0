// How does repair leave alone what stands?

/** Puts something back unless the check finds that it is there. */
export function mend(check: () => void, putBack: () => void): void {
  try {
    check();
  } catch {
    // Whatever it is that differs: CHECK tells when it still does afterwards.
    putBack();
  }
}
