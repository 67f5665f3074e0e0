// What can an operator change while the daemon runs?
import { readFileSync, unwatchFile, watchFile } from 'node:fs';
import * as z from 'zod/mini';
import { type BetweenSettings, BLOCKS, KUBERNETES, WAYS } from '../between/plan.ts';
import type { Deadlines } from '../chain/run/runtime.ts';
import { CniError, ErrorCode, invalidConfig } from '../cni/errors.ts';
import { defined, describeIssue, parseJson } from '../cni/json.ts';
import { findCidr } from '../net/ip.ts';
import { chooseObserver, type ObserveChoices, type OutputOptions } from '../observe/observer.ts';
import { LONGEST_S } from '../wait.ts';
import { LIST_POLICIES, POLICIES, type WatchSettings } from '../watch/settings.ts';
import type { PoolLimits } from './pool.ts';

const Count = z.int().check(z.minimum(1));
const CountOrNone = z.int().check(z.minimum(0));
/** No timer waits longer: 24 days. */
const Seconds = z.optional(z.number().check(z.positive(), z.maximum(LONGEST_S)));

/** The file given by `--config`. A missing key keeps its value from the command line. */
const Settings = z.strictObject({
  /** Maximum number of requests at work, each of which has a worker. */
  workers: z.optional(Count),
  /** Calls after which a worker is replaced. */
  callsPerWorker: z.optional(Count),
  /** Resident memory in MiB above which a worker is replaced. */
  memoryPerWorkerMiB: z.optional(Count),
  /** Seconds after which an idle worker is ended. */
  idleSeconds: z.optional(Count),
  /** Seconds without a request after which the daemon ends. */
  idleExit: Seconds,
  /** Deadline of each plugin in seconds, by verb, for requests that do not set one. */
  timeouts: z.optional(
    z.strictObject({ add: Seconds, check: Seconds, del: Seconds, gc: Seconds, status: Seconds }),
  ),
  /** Destinations of log lines. */
  log: z.optional(z.union([z.string(), z.array(z.string())], 'must be a string or an array of strings')),
  /** Least severe level that is logged, in general and by plugin. */
  logLevel: z.optional(z.string()),
  /** Size at which a log file is rotated. */
  logMaxBytes: z.optional(Count),
  /** Number of log files kept for each path. */
  logMaxFiles: z.optional(Count),
  /** Number of traces kept. */
  traces: z.optional(CountOrNone),
  /** Directory of traces. */
  traceDir: z.optional(z.string().check(z.startsWith('/', 'must be an absolute path'))),
  /** URL of the collector for spans. */
  otlpEndpoint: z.optional(z.string()),
  /** What is done about attachments that others have damaged: `observe`, `repair` or `off`. */
  watch: z.optional(z.enum(POLICIES)),
  /** What is done about a list whose file another program wrote without some of its plugins: `tell` or `restore`. */
  lists: z.optional(z.enum(LIST_POLICIES)),
  /** Least seconds between two checks of an attachment to which nothing has happened. */
  watchSeconds: Seconds,
  /** Seconds after which an attachment whose namespace ended without a DEL is deleted under policy `repair`, or reported under `observe`; 0 keeps it. */
  leftoverSeconds: z.optional(z.number().check(z.minimum(0))),
  /** Where the other nodes of a cluster are read from, to whose pods routes are kept: a file or directory of JSON, `kubernetes` for the ranges of Node objects, or `blocks` for those that nodes claimed by the plugin `cluster`. Without it there are none. */
  nodes: z.optional(
    z
      .string()
      .check(
        z.regex(/^(kubernetes|blocks|\/.*)$/, `must be "${KUBERNETES}", "${BLOCKS}" or an absolute path`),
      ),
  ),
  /** Kubeconfig for `kubernetes` and `blocks`; without it, the account of the pod that the daemon runs in. */
  nodesKubeconfig: z.optional(z.string().check(z.startsWith('/', 'must be an absolute path'))),
  /** Subnets that hold the pods of all nodes, as `["10.244.0.0/16"]`: routes lead to nothing else, whatever a node announces. */
  clusterCidrs: z.optional(
    z.array(
      z.string().check(z.refine(text => findCidr(text) !== undefined, 'must be an address with a prefix')),
    ),
  ),
  /** How other nodes are reached: `direct`, through a tunnel (`vxlan`), or directly where they share a subnet (`auto`). */
  nodeWays: z.optional(z.enum(WAYS)),
  /** VXLAN network identifier of the tunnels, the same on all nodes. */
  vxlanId: z.optional(z.int().check(z.minimum(1), z.maximum(0xffffff))),
  /** UDP port of the tunnels, the same on all nodes. */
  vxlanPort: z.optional(z.int().check(z.minimum(1), z.maximum(0xffff))),
});
type Settings = z.output<typeof Settings>;

export interface DaemonSettings {
  readonly pool: PoolLimits;
  /** Deadline of each plugin, for requests that do not set one. */
  readonly deadlines: Deadlines;
  readonly observe: ObserveChoices;
  readonly watch: WatchSettings;
  readonly between: BetweenSettings;
  /** Milliseconds without a request after which the daemon ends; undefined: it stays. */
  readonly idleExitMs?: number | undefined;
}

/** The same, with the observer's settings checked and ready to use. */
export interface CheckedSettings extends DaemonSettings {
  readonly observer: OutputOptions;
}

/** How often the file is checked for changes. */
const LOOK_EVERY_MS = 1_000;
const MIB = 1024 * 1024;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the file.
 * @param base values for the keys that the file leaves out
 * @param env environment with OpenTelemetry's variables
 * @throws CniError 5 if it cannot be read, 7 if it is invalid
 */
export function readSettings(file: string, base: DaemonSettings, env: Environment): CheckedSettings {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const problem = `Cannot read settings "${file}": ${(cause as Error).message}`;
    throw new CniError(ErrorCode.ioFailure, problem, { cause });
  }
  const value = parseJson(text, problem => refuse(file, problem));
  const parsed = z.safeParse(Settings, value, { reportInput: true });
  if (!parsed.success) throw refuse(file, parsed.error.issues.map(describeIssue).join('; '));
  const settings = over(base, parsed.data);
  try {
    return { ...settings, observer: chooseObserver(settings.observe, env) };
  } catch (cause) {
    throw refuse(file, (cause as Error).message);
  }
}

/**
 * Applies the file again whenever it changes. An invalid file is reported, and the previous settings stay in force.
 * @returns a function that stops watching
 */
export function watchSettings(
  file: string,
  base: DaemonSettings,
  env: Environment,
  apply: (settings: CheckedSettings) => void | Promise<void>,
  warn: (problem: string) => void,
): () => void {
  // Polled rather than watched: editors and ConfigMaps replace files by rename.
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

function over(base: DaemonSettings, said: Settings): DaemonSettings {
  const scaled = (count: number | undefined, by: number) => (count === undefined ? undefined : count * by);
  const { pool, deadlines, observe, watch, between } = base;
  const { workers, callsPerWorker: calls, timeouts = {}, log } = said;
  const { logLevel, logMaxBytes, logMaxFiles, traces, traceDir, otlpEndpoint } = said;
  const { nodes, nodesKubeconfig: kubeconfig, clusterCidrs, nodeWays: ways, vxlanId, vxlanPort } = said;
  const bytes = scaled(said.memoryPerWorkerMiB, MIB);
  const idleMs = scaled(said.idleSeconds, 1_000);
  const everyMs = scaled(said.watchSeconds, 1_000);
  const leftoverMs = scaled(said.leftoverSeconds, 1_000);
  const timeoutsMs = Object.entries(timeouts).flatMap(([verb, seconds]) =>
    seconds === undefined ? [] : [[verb.toUpperCase(), seconds * 1_000]],
  );
  const logged = { log: log === undefined ? log : [log].flat(), logLevel, logMaxBytes, logMaxFiles };
  return {
    idleExitMs: scaled(said.idleExit, 1_000) ?? base.idleExitMs,
    pool: { ...pool, ...defined({ workers, calls, bytes, idleMs }) },
    deadlines: { ...deadlines, ...Object.fromEntries(timeoutsMs) },
    watch: { ...watch, ...defined({ policy: said.watch, lists: said.lists, everyMs, leftoverMs }) },
    between: {
      ...between,
      ...defined({ nodes, kubeconfig, clusterCidrs, ways, vni: vxlanId, port: vxlanPort }),
    },
    observe: { ...observe, ...defined({ ...logged, traces, traceDir, otlpEndpoint }) },
  };
}

function refuse(file: string, problem: string): CniError {
  return invalidConfig(`Cannot use settings "${file}": ${problem}`);
}
