// Where do the log lines of a long-lived process go, and what if a destination does not accept them?
import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { Writable } from 'node:stream';
import { absolutePath } from '../files/absolute-path.ts';
import { loadWinston } from '../log.ts';
import { openUnixDatagram } from '../sys/service-manager.ts';
import type { LogLine } from './log-lines.ts';
import { openRotatingFile, type RotationLimits } from './rotating-file.ts';
import { JOURNAL_SOCKET, renderJournal, renderSyslog, SYSLOG_SOCKET } from './system-log.ts';

/** A destination for log lines. */
export type LogDestination =
  /** JSON on standard error. */
  | { readonly kind: 'console' }
  /** JSON in a file that is rotated. */
  | ({ readonly kind: 'file'; readonly path: string } & RotationLimits)
  /** Datagrams to a syslog daemon or to systemd's journal. */
  | { readonly kind: 'syslog' | 'journal'; readonly path: string };

/** Default rotation. */
export const LOG_FILE_LIMITS: RotationLimits = { maxBytes: 16 * 1024 * 1024, maxFiles: 5 };

/** An open log. */
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
  const streams = destinations.map(destination => {
    const place = openPlace(destination);
    return toStream(place, () => {
      dropped += 1;
    });
  });
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
interface Place {
  /** Whether it takes an object with fields instead of JSON text. */
  readonly structured: boolean;
  write(line: never): void;
  close(): void;
}

function openPlace(destination: LogDestination): Place {
  if (destination.kind === 'console') {
    const console = openConsole();
    return { structured: false, write: console.append, close: console.close };
  }
  if (destination.kind === 'file') {
    const file = openRotatingFile(destination.path, destination);
    return { structured: false, write: (line: Buffer) => file.append(line), close: file.close };
  }
  const socket = openUnixDatagram(destination.path);
  const render =
    destination.kind === 'journal'
      ? renderJournal
      : (line: LogLine) => renderSyslog(line, new Date(), process.pid);
  return {
    structured: true,
    write({ level, message, timestamp: _, ...fields }: Info) {
      socket.send(render({ level, message, fields }));
    },
    close: socket.close,
  };
}

/**
 * Standard error for lines that must not block: a reader that has stopped reading would stop the whole process. So the file is
 * opened a second time, with O_NONBLOCK, since that flag belongs to the open file and not to us. The system's journal is a
 * socket, which cannot be opened this way; but it does read.
 */
function openConsole(): { append: (line: Buffer) => void; close: () => void } {
  let fd = 2;
  let torn = false;
  try {
    fd = openSync('/proc/self/fd/2', constants.O_WRONLY | constants.O_APPEND | constants.O_NONBLOCK);
  } catch {
    // A socket, or a file that we may not open.
  }
  return {
    append(line) {
      const bytes = torn ? Buffer.concat([Buffer.from('\n'), line]) : line;
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

function toStream(place: Place, drop: () => void): Writable {
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
