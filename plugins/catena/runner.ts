// What does a call of the runner give its verbs to work with?
import { appendFileSync, writeSync } from 'node:fs';
import { isOwnExecutable, parsePluginDirs } from '../../src/chain/find-plugin.ts';
import type { LinkEvent, Runtime } from '../../src/chain/runtime.ts';
import type { PodKey } from '../../src/delegate/record.ts';
import type { Runner } from '../../src/delegate/runner.ts';
import { createLog, LOG_LEVELS, type Log, type LogLevel } from '../../src/log.ts';
import type { Call } from '../../src/plugin/define.ts';
import { openWorker } from '../../src/worker/client.ts';
import { startForeign } from '../../src/worker/foreign.ts';
import { binDirsOf, type CatenaConf, optionsOf, placesOf } from './config.ts';
import { containerRoutes } from './kernel.ts';

/** What names the pod's record. */
export function keyOf({ env, network }: Call<CatenaConf>): PodKey & { readonly netns: string } {
  const { containerId, ifname, netns } = env;
  return { network, containerId, ifname, netns };
}

/** Does the work with a runner, and writes down what it had to tell. */
export async function withRunner<T>(
  call: Call<CatenaConf>,
  work: (runner: Runner) => Promise<T>,
): Promise<T> {
  const { conf, env, network, version } = call;
  const log = logOf(call);
  const { cacheDir, callerCacheDir, recordDir, env: delegateEnv } = placesOf(conf);
  const interrupt = new AbortController();
  const onSignal = () => interrupt.abort();
  for (const name of SIGNALS) process.once(name, onSignal);
  try {
    return await work({
      options: optionsOf(conf, network, version),
      runtime: {
        pluginDirs: [...binDirsOf(conf), ...parsePluginDirs(env.path)],
        cacheDir,
        env: delegateEnv,
        signal: interrupt.signal,
        ...throughWorker(),
        onLink: event => {
          log.info(event.error ? 'link failed' : 'link done', fieldsOf(event));
          if (conf.traceFile) appendFileSync(conf.traceFile, `${JSON.stringify(traceOf(event))}\n`);
        },
        onWarning: warning => log.warn(warning.message),
      },
      recordDir,
      callerCacheDir,
      routes: containerRoutes(() => call.container),
      warn: (message, fields) => log.warn(message, fields),
    });
  } finally {
    for (const name of SIGNALS) process.removeListener(name, onSignal);
    if (log !== call.log) await log.flush();
  }
}

/** One process serves all links that are this very executable; others start as ever. */
function throughWorker(): Pick<Runtime, 'start' | 'finish'> {
  const worker = openWorker();
  return {
    start: invocation =>
      isOwnExecutable(invocation.path) ? worker.start(invocation) : startForeign(invocation),
    finish: worker.finish,
  };
}

/** What ends an ADD before its time takes it back. */
const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/** Names of multus's levels that are not ours. */
const FOREIGN_LEVELS: Readonly<Record<string, LogLevel>> = { panic: 'error', verbose: 'info' };

/** The call's own log, unless the configuration says otherwise. */
function logOf({ conf, env, args, log, network }: Call<CatenaConf>): Log {
  const { logFile, logLevel, logToStderr } = conf;
  if (!logFile && !logLevel) return log;
  const level = LOG_LEVELS.find(known => known === logLevel) ?? FOREIGN_LEVELS[logLevel ?? ''];
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

function fieldsOf({ network, link, index, verb, durationMs, error }: LinkEvent): Record<string, unknown> {
  return {
    delegate: network,
    link,
    link_index: index,
    command: verb,
    duration_ms: Math.round(durationMs * 10) / 10,
    ...(error ? { code: error.code, error: error.message, details: error.details } : {}),
  };
}

function traceOf({ span, executable, ...event }: LinkEvent): Record<string, unknown> {
  return { time: new Date().toISOString(), ...fieldsOf({ executable, ...event }), executable, ...span };
}
