// What may an operator change while the daemon runs?
import { readFileSync, unwatchFile, watchFile } from 'node:fs';
import * as z from 'zod/mini';
import type { Deadlines } from '../chain/runtime.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { describeIssue } from '../cni/json.ts';
import { chooseObserver, type ObserveChoices, type ObserverChoice } from '../observe/choices.ts';
import type { PoolLimits } from './pool.ts';
import type { ServerLimits } from './server.ts';

const Count = z.int().check(z.minimum(1));
const CountOrNone = z.int().check(z.minimum(0));
const Seconds = z.optional(z.number().check(z.positive()));

/** The file given by `--config`; what is left out is as without the file. */
const Settings = z.strictObject({
  /** Processes that serve links, at most. */
  workers: z.optional(Count),
  /** Calls after which a worker is replaced. */
  callsPerWorker: z.optional(Count),
  /** Resident memory in MiB above which a worker is replaced. */
  memoryPerWorkerMiB: z.optional(Count),
  /** Seconds after which a worker without work goes. */
  idleSeconds: z.optional(Count),
  /** Requests at the same time, at most. */
  requests: z.optional(Count),
  /** Requests that may wait for their turn. */
  queue: z.optional(CountOrNone),
  /** Seconds that each link may take, by verb, for requests that do not say. */
  timeouts: z.optional(
    z.strictObject({ add: Seconds, check: Seconds, del: Seconds, gc: Seconds, status: Seconds }),
  ),
  /** Places for log lines. */
  log: z.optional(z.union([z.string(), z.array(z.string())], 'must be a text or an array of texts')),
  /** Least severe lines that are logged, for all and by link. */
  logLevel: z.optional(z.string()),
  /** Size at which a log file is rotated. */
  logMaxBytes: z.optional(Count),
  /** Log files that are kept of each. */
  logMaxFiles: z.optional(Count),
  /** Traces that are kept. */
  traces: z.optional(CountOrNone),
  /** Directory of traces. */
  traceDir: z.optional(z.string().check(z.startsWith('/', 'must be an absolute path'))),
  /** Collector that gets spans. */
  otlpEndpoint: z.optional(z.string()),
});
type Settings = z.output<typeof Settings>;

/** What the daemon's parts go by. */
export interface DaemonSettings {
  readonly pool: PoolLimits;
  readonly server: ServerLimits;
  /** How long each link may take, for requests that do not say. */
  readonly deadlines: Deadlines;
  readonly observe: ObserveChoices;
}

/** The same, with what is to be observed made ready to use. */
export interface CheckedSettings extends DaemonSettings {
  readonly observer: ObserverChoice;
}

/** How often the file is looked at. */
const LOOK_EVERY_MS = 1_000;
const MIB = 1024 * 1024;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the file.
 * @param base what holds for all that the file leaves out
 * @param env in which OpenTelemetry's variables are looked for
 * @throws CniError 5 when it cannot be read, 7 when it makes no sense
 */
export function readSettings(file: string, base: DaemonSettings, env: Environment): CheckedSettings {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new CniError(ErrorCode.ioFailure, `Cannot read settings "${file}": ${(cause as Error).message}`, {
      cause,
    });
  }
  const parsed = z.safeParse(Settings, parseJson(text, file), { reportInput: true });
  if (!parsed.success) throw refuse(file, parsed.error.issues.map(describeIssue).join('; '));
  const settings = over(base, parsed.data);
  try {
    return { ...settings, observer: chooseObserver(settings.observe, env) };
  } catch (cause) {
    throw refuse(file, (cause as Error).message);
  }
}

/**
 * Applies the file again whenever it changes. One that went bad is reported, and what held before holds on.
 * @returns ends that
 */
export function watchSettings(
  file: string,
  base: DaemonSettings,
  env: Environment,
  apply: (settings: CheckedSettings) => void | Promise<void>,
  warn: (problem: string) => void,
): () => void {
  // Looked at, not listened to: editors and configuration maps replace files by rename.
  const look = async (): Promise<void> => {
    try {
      await apply(readSettings(file, base, env));
    } catch (error) {
      warn((error as Error).message);
    }
  };
  watchFile(file, { interval: LOOK_EVERY_MS, persistent: false }, look);
  return () => unwatchFile(file, look);
}

function over({ pool, server, deadlines, observe }: DaemonSettings, said: Settings): DaemonSettings {
  const { memoryPerWorkerMiB: memory, idleSeconds: idle, timeouts = {}, log } = said;
  return {
    pool: {
      workers: said.workers ?? pool.workers,
      calls: said.callsPerWorker ?? pool.calls,
      bytes: memory === undefined ? pool.bytes : memory * MIB,
      idleMs: idle === undefined ? pool.idleMs : idle * 1_000,
    },
    server: { ...server, requests: said.requests ?? server.requests, queue: said.queue ?? server.queue },
    deadlines: { ...deadlines, ...deadlinesIn(timeouts) },
    observe: {
      log: log === undefined ? observe.log : [log].flat(),
      logLevel: said.logLevel ?? observe.logLevel,
      logMaxBytes: said.logMaxBytes ?? observe.logMaxBytes,
      logMaxFiles: said.logMaxFiles ?? observe.logMaxFiles,
      traces: said.traces ?? observe.traces,
      traceDir: said.traceDir ?? observe.traceDir,
      otlpEndpoint: said.otlpEndpoint ?? observe.otlpEndpoint,
    },
  };
}

function deadlinesIn(timeouts: NonNullable<Settings['timeouts']>): Deadlines {
  const said = Object.entries(timeouts).flatMap(([verb, seconds]) =>
    seconds === undefined ? [] : [[verb.toUpperCase(), seconds * 1_000]],
  );
  return Object.fromEntries(said);
}

function parseJson(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw refuse(file, (cause as Error).message);
  }
}

function refuse(file: string, problem: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot use settings "${file}": ${problem}`);
}
