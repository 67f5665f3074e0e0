// What does a long-running process do when no request has come for a while?
import { releaseProgramCode } from '../sys/process.ts';

/**
 * Frees what calls have left behind, such that the next call costs no more. Discarding compiled code (`Bun.shrink`), or a new process,
 * would free 12 MiB more, and the next call would take twice the processor time.
 */
export function rest(): void {
  Bun.gc(true);
  releaseProgramCode();
}

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
