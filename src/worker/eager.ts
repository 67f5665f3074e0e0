// How does a process that stays make up for a program that is built to end soon?

/** bun's interface to JavaScriptCore, as far as its types leave it out. */
interface UnsafeBun {
  setJITPolicy?(scale: number): void;
}

/**
 * Puts the thresholds of the compiler back to normal: our executable is built with ones a hundred times as high, since a
 * link's process ends before compiled code has paid for itself.
 */
export function compileEagerly(): void {
  (Bun.unsafe as UnsafeBun).setJITPolicy?.(1);
}
