// Where are the runner's own log lines written, and those of its trace file?
import { appendFileSync, statSync, writeSync } from 'node:fs';
import type { PluginEvent } from '../../src/chain/run/runtime.ts';
import { findCniArgs } from '../../src/cni/env.ts';
import type { PluginConfig } from '../../src/cni/schemas.ts';
import { createLog, LOG_LEVELS, type Log, type LogLevel } from '../../src/log.ts';
import { maskText } from '../../src/observe/secrets.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { CatenaConf } from './config.ts';

/** Multus's names of levels that we do not have. */
const FOREIGN_LEVELS: Readonly<Record<string, LogLevel>> = { panic: 'error', verbose: 'info' };

/** The call's own log, unless the configuration specifies another. */
export function logOf(
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
export function writeTraceLine(file: string, event: PluginEvent, log: Log): void {
  try {
    appendFileSync(file, `${JSON.stringify(traceOf(event))}\n`, { mode: 0o600 });
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
export function fieldsOf({
  network,
  plugin: link,
  index,
  verb,
  durationMs,
  error,
}: PluginEvent): Record<string, unknown> {
  return {
    delegate: network,
    link,
    link_index: index,
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

function traceOf({ span, executable, ...event }: PluginEvent): Record<string, unknown> {
  return { time: new Date().toISOString(), ...fieldsOf({ executable, ...event }), executable, ...span };
}
