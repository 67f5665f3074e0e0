// What is a door, and how is one input after the other pushed through it?
import fc from 'fast-check';

/** A place of which strangers decide what comes in. */
export interface Door<T> {
  readonly name: string;
  /** Share of the inputs: a door that costs more gets fewer. */
  readonly weight: number;
  /** Valid samples, damaged in many ways, and noise. */
  readonly arbitrary: fc.Arbitrary<T>;
  /**
   * Takes one input in and checks the promise: a value, or an error in the terms of the protocol.
   * @throws Error saying which promise was broken
   */
  run(input: T): void | Promise<void>;
  /** Inputs that broke a promise once: always tried first. A failure is printed so that it can be added here. */
  readonly seeds?: readonly T[];
  /** Undoes what the door needed. */
  close?(): void | Promise<void>;
}

/** A door, whatever its input is made of. */
export interface AnyDoor {
  readonly name: string;
  readonly weight: number;
  readonly seeds: number;
  /** Tries inputs that follow from the seed. */
  push(inputs: number, seed: number, options?: PushOptions): Promise<Failure | undefined>;
  /** Tries the kept seeds. */
  pushSeeds(): Promise<Failure | undefined>;
  close(): Promise<void>;
}

/** How to push. */
export interface PushOptions {
  /** Told of every input, as source text, before it is tried. */
  readonly onInput?: ((source: string) => void) | undefined;
}

/** An input that broke a promise, made as small as it goes. */
export interface Failure {
  readonly door: string;
  /** With which the same inputs come again. */
  readonly seed: number;
  /** The input as source text, to be kept among the seeds of its door. */
  readonly input: string;
  readonly problem: string;
}

/** Longest time that one input may take, in time of the processor. */
const INPUT_DEADLINE_MS = 3_000;
/** Longest time that is waited for one input. */
const WAIT_DEADLINE_MS = 30_000;

/** A door of any input. */
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
