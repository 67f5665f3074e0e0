// Where do the log lines of a long-lived process go, in which form, and what if a destination does not accept them?

import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { Writable } from 'node:stream';
import { attempt } from '../cni/errors.ts';
import { defined, isObject, type JsonObject, objectsIn, tryParse } from '../cni/json.ts';
import { absolutePath } from '../files/read-file.ts';
import { LOG_LEVELS, type LogFields, type LogLevel, loadWinston } from '../log.ts';
import { openUnixDatagram } from '../sys/service-manager.ts';
import type { PluginRecord, RequestRecord } from './record.ts';
import { openRotatingFile, type RotatingFile, type RotationLimits } from './rotating-file.ts';

const LINE_END = Buffer.from('\n');

/** One line, before it gets a timestamp. */
interface LogLine {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

/** Log levels: the general one, and those of single plugins. */
export interface LogLevels {
  readonly level: LogLevel;
  readonly plugins: Readonly<Record<string, LogLevel>>;
}

/**
 * Parses `info` or `info,portmap=debug,tuning=error`.
 * @throws Error for an unknown level
 */
export function parseLogLevels(text: string): LogLevels {
  const plugins: Record<string, LogLevel> = {};
  let level: LogLevel = 'info';
  for (const part of text.split(',').filter(one => one.trim() !== '')) {
    const [left = '', right] = part.split('=').map(half => half.trim());
    const wanted = LOG_LEVELS.find(one => one === (right ?? left));
    if (wanted === undefined)
      throw new Error(
        `Cannot use log level ${JSON.stringify(part)}: expected one of ${LOG_LEVELS.join(', ')}, or <plugin>=<level>`,
      );
    if (right === undefined) level = wanted;
    else plugins[left] = wanted;
  }
  return { level, plugins };
}

/** Least severe level that is logged for a plugin, for its `CATENA_LOG_LEVEL`. */
export function levelOf({ level, plugins }: LogLevels, plugin?: string): LogLevel {
  return (plugin !== undefined && Object.hasOwn(plugins, plugin) ? plugins[plugin] : undefined) ?? level;
}

/** The lines of a finished request: its plugins in the order in which they ended, then the request itself. */
export function linesOf(record: RequestRecord, levels: LogLevels): LogLine[] {
  const common = commonFields(record);
  const lines = record.plugins.flatMap(plugin => {
    const fields = { ...common, network: plugin.network, plugin: plugin.type, plugin_index: plugin.index };
    const own = [...saidBy(plugin, fields), endOf(plugin, fields)];
    return own.filter(line => isWritten(line, levelOf(levels, plugin.type)));
  });
  const { result, code, message, details, durationMs, queueMs, lockMs, warm } = record;
  const line = outcomeOf('request', code, {
    ...{ ...common, duration_ms: durationMs, code, warm },
    ...defined({ queue_ms: queueMs, lock_ms: lockMs }),
    ...addressesOf(result),
    ...defined({ error: message, details }),
  });
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
  const said = text.startsWith('{') ? tryParse(text) : undefined;
  return isObject(said) && typeof said.message === 'string' ? said : undefined;
}

function endOf(plugin: PluginRecord, fields: LogFields): LogLine {
  const { verb, code, message, details, durationMs, executable } = plugin;
  const own = { command: verb, duration_ms: durationMs, code, executable };
  return outcomeOf('plugin', code, { ...fields, ...own, ...defined({ error: message, details }) });
}

function outcomeOf(what: 'plugin' | 'request', code: number, fields: LogFields): LogLine {
  if (code === 0) return { level: 'info', message: `${what} finished`, fields };
  return { level: 'error', message: `${what} failed`, fields };
}

function addressesOf(result: JsonObject | undefined): LogFields {
  const addresses = objectsIn(result, 'ips').flatMap(({ address }) =>
    typeof address === 'string' ? [address] : [],
  );
  return addresses.length ? { addresses } : {};
}

function isWritten({ level }: LogLine, least: LogLevel): boolean {
  return LOG_LEVELS.indexOf(level) <= LOG_LEVELS.indexOf(least);
}

/** The socket of a syslog daemon; systemd's journal also listens there. */
const SYSLOG_SOCKET = '/dev/log';

/** The socket on which systemd's journal takes lines with fields. */
const JOURNAL_SOCKET = '/run/systemd/journal/socket';

/** Our name in the log. */
const IDENTIFIER = 'catena';

/** RFC 5424, section 6.2.1: severities, and the facility of system daemons. */
const SEVERITY: Readonly<Record<LogLevel, number>> = { error: 3, warn: 4, info: 6, debug: 7 };
const FACILITY_DAEMON = 3;

/** Syslog daemons truncate longer lines at an arbitrary point (RFC 3164 asks for 1024; rsyslog takes 8 KiB, the journal more). */
const MAX_SYSLOG_BYTES = 8_000;

/** A datagram to the journal that exceeds the socket's buffer is refused as a whole. */
const MAX_VALUE_BYTES = 32 * 1024;

/**
 * A line for the local socket of a syslog daemon: `<30>Nov 21 09:40:25 catena[7]: {…}` (RFC 3164, without the host's name, as the
 * C library's syslog() writes it). The text after the name is one line of JSON.
 */
export function renderSyslog({ level, message, fields }: LogLine, at: Date, pid: number): Uint8Array {
  const priority = FACILITY_DAEMON * 8 + SEVERITY[level];
  const time = `${MONTHS[at.getMonth()]} ${String(at.getDate()).padStart(2)} ${at.toTimeString().slice(0, 8)}`;
  const text = JSON.stringify({ level, message, ...fields });
  const bytes = new TextEncoder().encode(`<${priority}>${time} ${IDENTIFIER}[${pid}]: ${text}`);
  return bytes.subarray(0, MAX_SYSLOG_BYTES);
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/**
 * A line in the journal's native protocol, where every field has a name: `container_id` is found by `journalctl
 * CATENA_CONTAINER_ID=…` (systemd, "Native Journal Protocol").
 */
export function renderJournal({ level, message, fields }: LogLine): Uint8Array {
  const own = Object.entries(fields).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return [`CATENA_${name.toUpperCase().replace(/[^A-Z\d]/g, '_')}`, text ?? ''] as const;
  });
  const pairs = [
    ['MESSAGE', message],
    ['PRIORITY', String(SEVERITY[level])],
    ['SYSLOG_IDENTIFIER', IDENTIFIER],
    ...own,
  ] as const;
  return Buffer.concat(pairs.map(([name, value]) => encodePair(name, value)));
}

/** `NAME=value`, or the form with a length if the value contains a line break. */
function encodePair(name: string, value: string): Uint8Array {
  const bytes = Buffer.from(value).subarray(0, MAX_VALUE_BYTES);
  if (!bytes.includes(0x0a)) return Buffer.concat([Buffer.from(`${name}=`), bytes, LINE_END]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes.length));
  return Buffer.concat([Buffer.from(`${name}\n`), length, bytes, LINE_END]);
}

export type LogDestination =
  /** JSON on standard error. */
  | { readonly kind: 'console' }
  /** JSON in a file that is rotated. */
  | ({ readonly kind: 'file'; readonly path: string } & RotationLimits)
  /** Datagrams to a syslog daemon or to systemd's journal. */
  | { readonly kind: 'syslog' | 'journal'; readonly path: string };

export const LOG_FILE_LIMITS: RotationLimits = { maxBytes: 16 * 1024 * 1024, maxFiles: 5 };

export interface LogOutput {
  /** Writes a line to every destination; never throws and never waits for a reader. */
  write(line: LogLine): void;
  /** Lines that a destination refused. */
  readonly dropped: number;
  close(): Promise<void>;
}

/**
 * Parses `console`, `file:<path>`, `syslog`, `journal`, or one of the last two with a socket (`syslog:<path>`).
 * @throws Error for anything else
 */
export function parseLogDestination(text: string, limits: RotationLimits = LOG_FILE_LIMITS): LogDestination {
  const [kind = '', ...rest] = text.split(':');
  const path = rest.join(':');
  if (kind === 'console' && path === '') return { kind };
  if (kind === 'file' && path !== '') return { kind, path: absolutePath(path), ...limits };
  if (kind === 'syslog') return { kind, path: path || SYSLOG_SOCKET };
  if (kind === 'journal') return { kind, path: path || JOURNAL_SOCKET };
  throw new Error(`Cannot log to ${JSON.stringify(text)}: expected console, file:<path>, syslog or journal`);
}

/** Opens the log. winston is loaded here, if there is a destination. */
export async function openLogOutput(destinations: readonly LogDestination[]): Promise<LogOutput> {
  // Without destinations, winston would be six megabytes for nothing.
  if (destinations.length === 0) return { write() {}, dropped: 0, async close() {} };
  const { createLogger, format, transports } = await loadWinston();
  let dropped = 0;
  const drop = (): void => {
    dropped += 1;
  };
  const streams = destinations.map(destination => toStream(openDestination(destination), drop));
  const logger = createLogger({
    level: 'debug',
    format: format.combine(format.timestamp(), format.json()),
    transports: streams.map(stream => new transports.Stream({ stream })),
  });
  return {
    write({ level, message, fields }) {
      logger.log(level, message, fields);
    },
    get dropped() {
      return dropped;
    },
    async close() {
      const finished = new Promise(done => logger.once('finish', done));
      logger.end();
      await finished;
      for (const stream of streams) stream.destroy();
    },
  };
}

/** An open destination: takes a line as an object or as text, and throws if it cannot write it. */
interface OpenDestination {
  /** Whether it takes an object with fields instead of JSON text. */
  readonly structured: boolean;
  write(line: never): void;
  close(): void;
}

function openDestination(destination: LogDestination): OpenDestination {
  const { kind } = destination;
  if (kind === 'console' || kind === 'file') {
    const file = kind === 'console' ? openConsole() : openRotatingFile(destination.path, destination);
    return { structured: false, write: file.append, close: file.close };
  }
  const socket = openUnixDatagram(destination.path);
  return {
    structured: true,
    write({ level, message, timestamp: _, ...fields }: Info) {
      const line = { level, message, fields };
      socket.send(kind === 'journal' ? renderJournal(line) : renderSyslog(line, new Date(), process.pid));
    },
    close: socket.close,
  };
}

/**
 * Standard error for lines that must not block: a reader that has stopped reading would stop the whole process. So the file is
 * opened a second time, with O_NONBLOCK, since that flag belongs to the open file and not to us. The system's journal is a
 * socket, which cannot be opened this way; but it does read.
 */
function openConsole(): RotatingFile {
  const mode = constants.O_WRONLY | constants.O_APPEND | constants.O_NONBLOCK;
  // It may be a socket, or a file that we may not open.
  const fd = attempt(() => openSync('/proc/self/fd/2', mode)) ?? 2;
  let torn = false;
  return {
    append(line) {
      const bytes = torn ? Buffer.concat([LINE_END, line]) : line;
      const written = writeSync(fd, bytes);
      torn = written < bytes.length;
      if (torn) throw new Error('Cannot write a whole line to standard error: the reader does not keep up');
    },
    close: () => {
      if (fd !== 2) closeSync(fd);
    },
  };
}

/** A line as winston passes it to an object stream. */
type Info = Pick<LogLine, 'level' | 'message'> & { readonly [field: string]: unknown };

function toStream(place: OpenDestination, drop: () => void): Writable {
  return new Writable({
    objectMode: place.structured,
    write(line, _encoding, done) {
      try {
        place.write(line as never);
      } catch {
        drop();
      }
      done();
    },
    destroy(error, done) {
      place.close();
      done(error);
    },
  });
}
