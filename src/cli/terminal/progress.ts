// How does a command that takes long show on the terminal what it is doing?
import { writeSync } from 'node:fs';
import { isatty } from 'node:tty';
import type { CommandCall } from '../command.ts';
import { isData } from '../output/format.ts';
import { widthOf } from './lines.ts';

/** One line on standard error that is rewritten, and removed before anything else is printed. */
interface Progress {
  /** What begins now: `ADD`, `scenario 2 of 9: life`. */
  step(what: string): void;
  /** Removes the line before the command prints something; the next step or second draws it again. */
  clear(): void;
  /** Removes the line for good. */
  end(): void;
}

/** Tells a command that runs in namespaces of its own on which descriptor it finds the terminal. */
const PROGRESS_VARIABLE = 'CATENA_PROGRESS_FD';

/** What is over sooner needs no progress. */
const SILENT_MS = 1_000;
const REDRAW_MS = 500;
const USUAL_WIDTH = 80;

/** Back to the first column, and delete to the end of the line (ECMA-48). */
const ERASE = '\r\u001b[K';

/** Shows nothing unless standard error is a terminal, and nothing beside data for programs. */
export function openProgress(call: CommandCall, name: string): Progress {
  const fd = progressFd(call);
  if (fd === undefined) return { step() {}, clear() {}, end() {} };
  const started = performance.now();
  const width = (widthOf(call) ?? USUAL_WIDTH) - 1;
  let now = '';
  let shown = false;
  const write = (text: string) => {
    try {
      writeSync(fd, text);
    } catch {
      // The terminal is gone; the command goes on.
    }
  };
  const draw = () => {
    const ms = performance.now() - started;
    if (now === '' || ms < SILENT_MS) return;
    write(`${ERASE}${`${name}: ${now} (${Math.floor(ms / 1000)} s)`.slice(0, width)}`);
    shown = true;
  };
  const clear = () => {
    if (shown) write(ERASE);
    shown = false;
  };
  const timer = setInterval(draw, REDRAW_MS);
  timer.unref();
  return {
    step(what) {
      now = what;
      draw();
    },
    clear,
    end() {
      clearInterval(timer);
      now = '';
      clear();
    },
  };
}

/** Shows what is being done until it has succeeded or failed. @param what `CHECK of every attachment` */
export async function during<T>(
  call: CommandCall,
  name: string,
  what: string,
  work: () => Promise<T>,
): Promise<T> {
  const progress = openProgress(call, name);
  progress.step(what);
  return work().finally(progress.end);
}

/**
 * Runs this command line again in namespaces of its own, where it can show progress on the same terminal, and prints what it
 * writes to its standard error.
 */
export async function rerunWithProgress(call: CommandCall): Promise<number> {
  const terminal = progressFd(call);
  const { rerunInNamespaces, TERMINAL_FD } = await import('../../lab/reexec.ts');
  const more = terminal === undefined ? {} : { [PROGRESS_VARIABLE]: `${TERMINAL_FD}` };
  const { exitCode, stderr } = await rerunInNamespaces({ ...call.env, ...more }, { terminal });
  call.err(stderr);
  return exitCode;
}

/** The descriptor of the terminal; undefined if no progress is to be shown. */
function progressFd(call: CommandCall): number | undefined {
  const { env } = call;
  if (isData(call) || env.TERM === 'dumb') return undefined;
  const fd = Number(env[PROGRESS_VARIABLE] ?? 2);
  return Number.isInteger(fd) && isatty(fd) ? fd : undefined;
}
