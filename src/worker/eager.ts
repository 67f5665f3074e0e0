// How does a long-running process compile code in a program that is built for short runs?

/** Bun's interface to JavaScriptCore that its types leave out. */
interface UnsafeBun {
  setJITPolicy?(scale: number): void;
}

/**
 * Resets the thresholds of the compiler to normal. Our executable is built with thresholds a hundred times as high, because a
 * plugin's process ends before compiled code has paid for itself.
 */
export function compileEagerly(): void {
  (Bun.unsafe as UnsafeBun).setJITPolicy?.(1);
}
