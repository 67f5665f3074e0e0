// What is a door, and how are inputs pushed through it one after the other?
import fc from 'fast-check';

/** A place where input comes from others. */
export interface Door<T> {
  readonly name: string;
  /** Share of the inputs: a more expensive door gets fewer. */
  readonly weight: number;
  /** Valid samples, damaged in many ways, and noise. */
  readonly arbitrary: fc.Arbitrary<T>;
  /**
   * Processes one input and checks the promise: a value, or an error of the protocol.
   * @throws Error saying which promise was broken
   */
  run(input: T): void | Promise<void>;
  /** Inputs that once broke a promise: always tried first. A failure is printed in a form that can be added here. */
  readonly seeds?: readonly T[];
  /** Undoes what the door set up. */
  close?(): void | Promise<void>;
}

/** A door with inputs of any type. */
export interface AnyDoor {
  readonly name: string;
  readonly weight: number;
  readonly seeds: number;
  /** Tries inputs derived from the seed. */
  push(inputs: number, seed: number, options?: PushOptions): Promise<Failure | undefined>;
  /** Tries the kept seeds. */
  pushSeeds(): Promise<Failure | undefined>;
  close(): Promise<void>;
}

/** How to push. */
export interface PushOptions {
  /** Called with every input, as source text, before it is tried. */
  readonly onInput?: ((source: string) => void) | undefined;
}

/** An input that broke a promise, minimized. */
export interface Failure {
  readonly door: string;
  /** Reproduces the same inputs. */
  readonly seed: number;
  /** The input as source text, to be kept among the seeds of its door. */
  readonly input: string;
  readonly problem: string;
}

/** Longest processor time for one input. */
const INPUT_DEADLINE_MS = 3_000;
/** Longest waiting time for one input. */
const WAIT_DEADLINE_MS = 30_000;

/** Creates a door. */
export function door<T>(made: Door<T>): AnyDoor {
  const { name, weight, arbitrary, seeds = [] } = made;
  const pushSeeds = async (): Promise<Failure | undefined> => {
    for (const input of seeds) {
      try {
        await attempt(made, input);
      } catch (error) {
        return { door: name, seed: 0, input: fc.stringify(input), problem: textOf(error) };
      }
    }
    return undefined;
  };
  return {
    name,
    weight,
    seeds: seeds.length,
    pushSeeds,
    async push(inputs, seed, { onInput } = {}) {
      const property = fc.asyncProperty(arbitrary, async input => {
        onInput?.(fc.stringify(input));
        await attempt(made, input);
      });
      const outcome = await fc.check(property, { numRuns: inputs, seed, interruptAfterTimeLimit: 120_000 });
      if (!outcome.failed || outcome.counterexample === null) return undefined;
      const [input] = outcome.counterexample;
      return { door: name, seed, input: fc.stringify(input), problem: textOf(outcome.errorInstance) };
    },
    close: async () => made.close?.(),
  };
}

async function attempt<T>({ run }: Door<T>, input: T): Promise<void> {
  const before = process.cpuUsage();
  const running = run(input);
  if (running instanceof Promise) await inTime(running);
  const { user, system } = process.cpuUsage(before);
  const ms = (user + system) / 1_000;
  if (ms > INPUT_DEADLINE_MS) throw new Error(`it took ${Math.round(ms)} ms of processor time`);
}

async function inTime(running: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, fail) => {
    timer = setTimeout(
      () => fail(new Error(`it had not ended after ${WAIT_DEADLINE_MS} ms`)),
      WAIT_DEADLINE_MS,
    );
  });
  try {
    await Promise.race([running, late]);
  } finally {
    clearTimeout(timer);
  }
}

function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const [frame] = error.stack?.split('\n').filter(line => /\/(src|plugins)\//.test(line)) ?? [];
  return [`${error.name}: ${error.message.slice(0, 500)}`, ...(frame ? [frame.trim()] : [])].join(' ');
}
