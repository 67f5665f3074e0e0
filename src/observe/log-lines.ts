// Which log lines does a request produce: one for itself, one for each plugin, and the plugins' own output?
import { defined } from '../cni/defined.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { LOG_LEVELS, type LogFields, type LogLevel } from '../log.ts';
import type { PluginRecord, RequestRecord } from './record.ts';

/** One line, before it gets a timestamp. */
export interface LogLine {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

/** Log levels: the general one, and those of single plugins. */
export interface LogLevels {
  readonly level: LogLevel;
  readonly links: Readonly<Record<string, LogLevel>>;
}

/**
 * Parses `info` or `info,portmap=debug,tuning=error`.
 * @throws Error for an unknown level
 */
export function parseLogLevels(text: string): LogLevels {
  const links: Record<string, LogLevel> = {};
  let level: LogLevel = 'info';
  for (const part of text.split(',').filter(one => one.trim() !== '')) {
    const [left = '', right] = part.split('=').map(half => half.trim());
    const wanted = LOG_LEVELS.find(one => one === (right ?? left));
    if (wanted === undefined)
      throw new Error(
        `Cannot use log level ${JSON.stringify(part)}: expected one of ${LOG_LEVELS.join(', ')}, or <plugin>=<level>`,
      );
    if (right === undefined) level = wanted;
    else links[left] = wanted;
  }
  return { level, links };
}

/** Least severe level that is logged for a plugin, for its `CATENA_LOG_LEVEL`. */
export function levelOf({ level, links }: LogLevels, link?: string): LogLevel {
  return (link !== undefined && Object.hasOwn(links, link) ? links[link] : undefined) ?? level;
}

/** The lines of a finished request: its plugins in the order in which they ended, then the request itself. */
export function linesOf(record: RequestRecord, levels: LogLevels): LogLine[] {
  const common = commonFields(record);
  const lines = record.links.flatMap(plugin => {
    const fields = { ...common, network: plugin.network, link: plugin.link, link_index: plugin.index };
    const own = [...saidBy(plugin, fields), endOf(plugin, fields)];
    return own.filter(line => isWritten(line, levelOf(levels, plugin.link)));
  });
  const { result, code, message, details, durationMs, queueMs, lockMs, warm } = record;
  const line: LogLine = {
    level: code === 0 ? 'info' : 'error',
    message: code === 0 ? 'request finished' : 'request failed',
    fields: {
      ...common,
      duration_ms: durationMs,
      code,
      warm,
      ...defined({ queue_ms: queueMs, lock_ms: lockMs }),
      ...addressesOf(result),
      ...defined({ error: message, details }),
    },
  };
  return isWritten(line, levels.level) ? [...lines, line] : lines;
}

function commonFields(record: RequestRecord): LogFields {
  const { id, traceId, verb, network, containerId, ifname, netns, podNamespace, podName } = record;
  return {
    request: id,
    ...defined({ trace_id: traceId }),
    command: verb,
    network,
    container_id: containerId,
    ifname,
    netns,
    ...defined({ pod_namespace: podNamespace, pod_name: podName }),
  };
}

/** Lines of our own plugins are JSON with a level; lines of other plugins are text, which is worth a warning. */
function saidBy({ stderr = '' }: PluginRecord, fields: LogFields): LogLine[] {
  const lines = stderr.split('\n').filter(line => line.trim() !== '');
  return lines.map(text => {
    const said = parseLine(text);
    if (said === undefined) return { level: 'warn', message: text, fields };
    const { level, message, timestamp, ...own } = said;
    return {
      level: LOG_LEVELS.find(one => one === level) ?? 'warn',
      message: String(message),
      fields: { ...own, ...fields, ...defined({ said_at: timestamp }) },
    };
  });
}

function parseLine(text: string): JsonObject | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    const said: unknown = JSON.parse(text);
    return isObject(said) && typeof said.message === 'string' ? said : undefined;
  } catch {
    return undefined;
  }
}

function endOf(
  { verb, code, message, details, durationMs, executable }: PluginRecord,
  fields: LogFields,
): LogLine {
  return {
    level: code === 0 ? 'info' : 'error',
    message: code === 0 ? 'plugin finished' : 'plugin failed',
    fields: {
      ...fields,
      command: verb,
      duration_ms: durationMs,
      code,
      executable,
      ...defined({ error: message, details }),
    },
  };
}

function addressesOf(result: JsonObject | undefined): LogFields {
  const ips = Array.isArray(result?.ips) ? result.ips : [];
  const addresses = ips.flatMap(ip => (isObject(ip) && typeof ip.address === 'string' ? [ip.address] : []));
  return addresses.length ? { addresses } : {};
}

function isWritten({ level }: LogLine, least: LogLevel): boolean {
  return LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(least);
}
