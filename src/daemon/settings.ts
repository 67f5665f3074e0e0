// What may an operator change while the daemon runs?
import { readFileSync, unwatchFile, watchFile } from 'node:fs';
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { describeIssue } from '../cni/json.ts';
import { POOL_LIMITS, type PoolLimits } from './pool.ts';
import { SERVER_LIMITS, type ServerLimits } from './server.ts';

const Count = z.int().check(z.minimum(1));

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
  queue: z.optional(z.int().check(z.minimum(0))),
});

/** Limits of the daemon's parts. */
export interface DaemonLimits {
  readonly pool: PoolLimits;
  readonly server: ServerLimits;
}

/** Limits without a file. */
export const DAEMON_LIMITS: DaemonLimits = { pool: POOL_LIMITS, server: SERVER_LIMITS };

/** How often the file is looked at. */
const LOOK_EVERY_MS = 1_000;
const MIB = 1024 * 1024;

/**
 * Reads the file.
 * @throws CniError 5 when it cannot be read, 7 when it makes no sense
 */
export function readSettings(file: string, base: DaemonLimits = DAEMON_LIMITS): DaemonLimits {
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
  const { workers, callsPerWorker, memoryPerWorkerMiB, idleSeconds, requests, queue } = parsed.data;
  const { pool, server } = base;
  return {
    pool: {
      workers: workers ?? pool.workers,
      calls: callsPerWorker ?? pool.calls,
      bytes: memoryPerWorkerMiB === undefined ? pool.bytes : memoryPerWorkerMiB * MIB,
      idleMs: idleSeconds === undefined ? pool.idleMs : idleSeconds * 1_000,
    },
    server: { ...server, requests: requests ?? server.requests, queue: queue ?? server.queue },
  };
}

/**
 * Applies the file again whenever it changes. One that went bad is reported, and what held before holds on.
 * @returns ends that
 */
export function watchSettings(
  file: string,
  base: DaemonLimits,
  apply: (limits: DaemonLimits) => void,
  warn: (problem: string) => void,
): () => void {
  // Looked at, not listened to: editors and configuration maps replace files by rename.
  const look = (): void => {
    try {
      apply(readSettings(file, base));
    } catch (error) {
      warn((error as Error).message);
    }
  };
  watchFile(file, { interval: LOOK_EVERY_MS, persistent: false }, look);
  return () => unwatchFile(file, look);
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
