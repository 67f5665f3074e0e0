// What does a call of the runner provide to its verbs?

import { appendFileSync, statSync, writeSync } from 'node:fs';
import { parsePluginDirs } from '../../src/chain/config/find-plugin.ts';
import type { Deadlines, PluginEvent, Watch, WatchedRequest } from '../../src/chain/run/runtime.ts';
import { withContainerAlone } from '../../src/chain/run/turns.ts';
import { runDir } from '../../src/cni/directories.ts';
import { findCniArgs, podNamedIn } from '../../src/cni/env.ts';
import { decodeFor, defined, isObject } from '../../src/cni/json.ts';
import { loadAbouts, type PluginCatalog, typesOf } from '../../src/cni/plugin-about.ts';
import type { PluginConfig } from '../../src/cni/schemas.ts';
import { type Cluster, type ClusterAccess, isInCluster } from '../../src/delegate/cluster.ts';
import type { PodKey } from '../../src/delegate/record.ts';
import type { FollowCall, Runner, RunnerOptions } from '../../src/delegate/runner.ts';
import { createLog, LOG_LEVELS, type Log, type LogLevel } from '../../src/log.ts';
import { maskText } from '../../src/observe/secrets.ts';
import type { Call } from '../../src/plugin/define.ts';
import { takePluginLock } from '../../src/plugin/lock.ts';
import { findTakenName } from '../../src/sys/netns.ts';
import { LOCK_DEADLINE_MS } from '../../src/wait.ts';
import { workerSegments } from '../../src/worker/client.ts';
import { ownWorker, type WorkerSource } from '../../src/worker/process.ts';
import { binDirsOf, CatenaConf, optionsOf, placesOf, RUNNER, type RunnerPlaces } from './config.ts';

/** Multus's names of levels that we do not have. */
const FOREIGN_LEVELS: Readonly<Record<string, LogLevel>> = { panic: 'error', verbose: 'info' };

/** The call's own log, unless the configuration specifies another. */
function logOf(
  { env, log, network }: Call<PluginConfig>,
  { logFile, logLevel, logToStderr }: CatenaConf,
): Log {
  if (!logFile && !logLevel) return log;
  const level = LOG_LEVELS.find(known => known === logLevel) ?? FOREIGN_LEVELS[logLevel ?? ''];
  const args = findCniArgs(env.args);
  const arg = (key: string) => args.findLast(([name]) => name === key)?.[1];
  const fields = {
    network,
    command: env.command,
    container_id: env.containerId || undefined,
    ifname: env.ifname || undefined,
    netns: env.netns || undefined,
    pod_namespace: arg('K8S_POD_NAMESPACE'),
    pod_name: arg('K8S_POD_NAME'),
  };
  return createLog(level, fields, logFile ? text => writeLog(logFile, logToStderr, text) : undefined);
}

/**
 * Rotates a full log file and, in a process that stays, compresses the older ones without waiting for it. Errors never fail the
 * request.
 */
export async function boundLogFile({ logFile, logOptions = {} }: CatenaConf, stays: boolean): Promise<void> {
  if (!logFile) return;
  const { maxSize = MAX_SIZE, maxBackups = 5, maxAge = 5, compress = true } = logOptions;
  const limits = { maxBytes: (maxSize || MAX_SIZE) * MIB, maxBackups, maxAgeDays: maxAge };
  const tell = (cause: unknown) =>
    writeStderr(`Cannot rotate log "${logFile}": ${(cause as Error).message}\n`);
  try {
    const { size = 0 } = statSync(logFile, { throwIfNoEntry: false }) ?? {};
    const isFull = size >= limits.maxBytes;
    if (!isFull && (!stays || KNOWN.has(logFile))) return;
    KNOWN.add(logFile);
    const { boundLog, packBackups } = await import('../../src/observe/log-backups.ts');
    boundLog(logFile, limits);
    if (stays && compress) packBackups(logFile).catch(tell);
  } catch (cause) {
    tell(cause);
  }
}

/** The same as multus's. */
const MAX_SIZE = 100;
const MIB = 1024 * 1024;

/** Log files that this process has already handled. */
const KNOWN = new Set<string>();

/** A full disk loses the line, but must not fail the attachment. */
function writeTraceLine(file: string, event: PluginEvent, log: Log): void {
  const { span, executable } = event;
  const line = { time: new Date().toISOString(), ...fieldsOf(event), executable, ...span };
  try {
    appendFileSync(file, `${JSON.stringify(line)}\n`, { mode: 0o600 });
  } catch (cause) {
    log.warn(`Cannot write trace file "${file}": ${(cause as Error).message}`);
  }
}

function writeLog(file: string, alsoStderr: boolean, text: string): void {
  if (alsoStderr) writeStderr(text);
  try {
    appendFileSync(file, text, { mode: 0o600 });
  } catch (cause) {
    if (!alsoStderr) writeStderr(text);
    writeStderr(`Cannot write log "${file}": ${(cause as Error).message}\n`);
  }
}

function writeStderr(text: string): void {
  writeSync(2, text);
}

/** The fields of a log line about a plugin call. */
function fieldsOf({ network, plugin, index, verb, durationMs, error }: PluginEvent): Record<string, unknown> {
  return {
    delegate: network,
    plugin,
    plugin_index: index,
    command: verb,
    duration_ms: Math.round(durationMs * 10) / 10,
    ...(error
      ? {
          code: error.code,
          error: maskText(error.message),
          details: maskText(error.details ?? '') || undefined,
        }
      : {}),
  };
}

export function keyOf({ env, network }: Call<PluginConfig>): PodKey & { readonly netns: string } {
  const { containerId, ifname, netns } = env;
  return { network, containerId, ifname, netns };
}

/** What a process that runs many calls shares between them. */
export interface RunnerSurroundings {
  /** Loads what is known about a plugin that is part of this executable. */
  readonly findAbout: PluginCatalog['find'];
  /** Workers for our own plugins; by default the call starts one of its own. */
  readonly workers?: WorkerSource;
  /** Observes the call and the plugins of every delegate; without it, the configuration decides whether a trace is kept. */
  readonly watch?: Watch;
  /** How long each plugin may take. */
  readonly deadlines?: Deadlines;
  /** Ends the call in an orderly way; by default a signal to this process does. */
  readonly signal?: AbortSignal;
  /** Opens a cluster whose state many calls share; by default each call opens its own. */
  readonly openCluster?: (access: ClusterAccess) => Promise<Cluster>;
}

/** Runs the work with a runner, and finishes the log and the trace of the call. */
export async function prepareRunner<T>(
  call: Call<PluginConfig>,
  { findAbout, workers, signal, watch, deadlines, openCluster }: RunnerSurroundings,
  work: (runner: Runner) => Promise<T>,
): Promise<T> {
  const { network, version } = call;
  const { conf, problems } = confOf(call);
  const log = logOf(call, conf);
  for (const problem of problems) log.warn(`Cannot use catena configuration: ${problem}`);
  const places = placesOf(conf, call.environment);
  const trace = watch ? undefined : await beginTrace(call, conf, places.env, log);
  const cluster = clusterOf(conf, call.environment, openCluster);
  let options: RunnerOptions | undefined;
  const interrupt = new AbortController();
  const onSignal = () => interrupt.abort();
  // It starts a process when one is needed.
  const own = ownWorker();
  if (!signal) for (const name of SIGNALS) process.once(name, onSignal);
  try {
    const done = await work({
      get options() {
        options ??= withCluster(optionsOf(conf, network, version), cluster);
        return options;
      },
      runtime: {
        ...watchedRuntime(call, conf, places, log, watch ?? trace?.watch ?? {}),
        openWitness: async () => (await import('../../src/node/garbage/witness.ts')).nodeWitness(findAbout),
        segments: workerSegments(workers ?? own),
        signal: signal ?? interrupt.signal,
        ...defined({ deadlineMs: deadlines }),
      },
      podsDir: places.podsDir,
      callerCacheDir: places.callerCacheDir,
      isSharedWithMultus: places.isSharedWithMultus,
      ...inContainer(call, { env: places.env, signal: signal ?? interrupt.signal }),
      look: async list => {
        const { lookOrTell } = await import('../../src/node/garbage/find-traced.ts');
        const find = await loadAbouts(findAbout, typesOf(list));
        return lookOrTell(({ message }) => log.warn(message), { runDir: runDir(places.env), find });
      },
      warn: (message, fields) => log.warn(message, fields),
      ...(cluster && servicesOf(cluster, log)),
      ...(cluster && conf.followAnnotations && podNamedIn(call) && { follow: followCall(call) }),
      ...(cluster && podNamedIn(call) && { again: followCall(call) }),
      isServed: openCluster !== undefined,
    });
    trace?.end({ result: isObject(done) ? done : undefined });
    return done;
  } catch (error) {
    trace?.end({ error });
    throw error;
  } finally {
    for (const name of SIGNALS) process.removeListener(name, onSignal);
    // This process may be a worker itself, which makes many calls.
    own.close();
    if (log !== call.log) await log.flush();
    // A process that provides workers stays.
    await boundLogFile(conf, workers !== undefined);
  }
}

function confOf({ env, request, network }: Call<PluginConfig>) {
  const what = `configuration of "${RUNNER}" in network "${network}"`;
  return decodeFor(env.command, CatenaConf, request, what);
}

function inContainer(
  call: Call<PluginConfig>,
  place: Pick<Runner['runtime'], 'env' | 'signal'>,
): Pick<Runner, 'routes' | 'beginQuiet' | 'endQuiet' | 'isAnsweredElsewhere' | 'findTaken' | 'whileAlone'> {
  const turn = { waitMs: LOCK_DEADLINE_MS, take: takePluginLock };
  return {
    whileAlone: (containerId, step) => withContainerAlone(containerId, place, turn, step),
    routes: async () => (await import('./kernel.ts')).containerRoutes(() => call.container),
    beginQuiet: async ifnames => (await loadQuiet()).beginQuiet(call.containerNetns, ifnames),
    async endQuiet(ifnames) {
      const netns = call.findContainerNetns();
      if (netns) (await loadQuiet()).endQuiet(netns, call.container, ifnames);
    },
    isAnsweredElsewhere: async ifnames =>
      (await import('../../src/attach/conflict.ts')).isAnsweredElsewhere(call, ifnames),
    findTaken: ifnames => findTakenName(call.containerNetns, ifnames),
  };
}

function servicesOf(
  cluster: OpenCluster,
  log: Log,
): Pick<Runner, 'cluster' | 'claims' | 'fetchAnnotations' | 'publish' | 'tell'> {
  return {
    cluster,
    claims: cluster,
    fetchAnnotations: async pod => (await loadClusterPod()).fetchAnnotations(cluster, pod),
    publish: async (pod, status) => (await loadClusterPod()).publishStatus(cluster, pod, status),
    tell: async (pod, outcome) =>
      (await loadClusterPod()).tellOutcome(cluster, pod, outcome, (message, fields) =>
        log.warn(message, fields),
      ),
  };
}

/** The runtime of the networks' plugins, with all observers of a plugin call attached. */
function watchedRuntime(
  { env, network }: Call<PluginConfig>,
  conf: CatenaConf,
  { cacheDir, stateDir, env: delegateEnv }: RunnerPlaces,
  log: Log,
  { onPlugin, ...watch }: Watch,
): Runner['runtime'] {
  return {
    pluginDirs: [...binDirsOf(conf), ...parsePluginDirs(env.path)],
    cacheDir,
    stateDir,
    owner: `${RUNNER} ${network}`,
    env: delegateEnv,
    ...watch,
    onPlugin: event => {
      onPlugin?.(event);
      log.info(event.error ? 'link failed' : 'link done', fieldsOf(event));
      if (conf.traceFile) writeTraceLine(conf.traceFile, event, log);
    },
    onWarning: warning => log.warn(warning.message),
  };
}

/** Begins a trace of the call, if one is configured; its code is loaded only then. */
async function beginTrace(
  { env: { command, containerId, ifname, netns, args: text }, network }: Call<PluginConfig>,
  { traceDir }: CatenaConf,
  env: RunnerPlaces['env'],
  log: Log,
): Promise<WatchedRequest | undefined> {
  const dir = traceDir || env.CATENA_TRACE_DIR;
  if (!dir) return undefined;
  const args = findCniArgs(text);
  const { openTraceWatcher } = await import('../../src/observe/watcher.ts');
  const watcher = openTraceWatcher(dir, ({ message }) => log.warn(`Cannot keep a trace: ${message}`));
  return watcher.begin({ verb: command, network, containerId, ifname, netns, args }, env);
}

/** The same call for the daemon to make again. */
function followCall({ environment, requestText }: Call<PluginConfig>): FollowCall {
  const names = ['CNI_CONTAINERID', 'CNI_NETNS', 'CNI_IFNAME', 'CNI_PATH', 'CNI_ARGS'] as const;
  const env = names.flatMap(name => (environment[name] ? [[name, environment[name]]] : []));
  return { env: Object.fromEntries(env), stdin: requestText };
}

type OpenCluster = () => Promise<Cluster>;

/** The configured cluster, opened on demand: DEL never opens it. */
function clusterOf(
  { kubeconfig, kubernetesTimeout }: CatenaConf,
  env: RunnerPlaces['env'],
  openCluster: RunnerSurroundings['openCluster'] = async access =>
    (await import('../../src/delegate/kubernetes.ts')).openCluster(access),
): OpenCluster | undefined {
  if (!kubeconfig && !isInCluster(env)) return undefined;
  let open: Promise<Cluster> | undefined;
  return () => {
    open ??= openCluster({ kubeconfig: kubeconfig || undefined, timeoutMs: kubernetesTimeout * 1000 });
    return open;
  };
}

/** What a change of a pod's annotation needs, and no other call. */
export const loadFollow = () => import('../../src/delegate/follow.ts');

const loadQuiet = () => import('../../src/attach/quiet.ts');

const loadClusterPod = () => import('../../src/delegate/cluster-pod.ts');

function withCluster(options: RunnerOptions, cluster: OpenCluster | undefined): RunnerOptions {
  if (cluster === undefined) return options;
  const fetchDefinition = async (namespace: string, name: string) =>
    (await cluster()).findDefinition(namespace, name);
  return {
    ...options,
    places: { ...options.places, fetchDefinition },
    listClaimedDevices: async pod => (await cluster()).listClaimedDevices(pod),
  };
}

/** Signals that end an ADD early, which is then undone. */
const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;
