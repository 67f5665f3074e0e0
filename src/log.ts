// Where do log lines go, and what do they cost if nothing is logged?
import { writeSync } from 'node:fs';

/** Severity, most severe first. */
export const LOG_LEVELS = ['error', 'warn', 'info', 'debug'] as const;

/** One of {@link LOG_LEVELS}. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Fields that give a line its context, named as in the design and the metrics (`network`, `container_id`, …). */
export type LogFields = Readonly<Record<string, unknown>>;

/** A log that collects lines until {@link Log.flush}; nothing is loaded until a line is to be written. */
export interface Log {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  debug(message: string, fields?: LogFields): void;
  /** Writes the collected lines to standard error, which the protocol leaves to plugins, or with the given function. */
  flush(write?: (text: string) => void): Promise<void>;
}

interface Line {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

/**
 * A log for one request.
 * @param level least severe level written; by default `CATENA_LOG_LEVEL`, else `warn`
 * @param fields added to every line
 * @param write writes finished lines
 */
export function createLog(
  level: LogLevel = levelFrom(process.env.CATENA_LOG_LEVEL),
  fields: LogFields = {},
  write: (text: string) => void = writeToStderr,
): Log {
  const lines: Line[] = [];
  const collect =
    (lineLevel: LogLevel) =>
    (message: string, own: LogFields = {}) => {
      if (LOG_LEVELS.indexOf(lineLevel) > LOG_LEVELS.indexOf(level)) return;
      lines.push({ level: lineLevel, message, fields: { ...fields, ...own } });
    };
  return {
    error: collect('error'),
    warn: collect('warn'),
    info: collect('info'),
    debug: collect('debug'),
    async flush(to = write) {
      if (lines.length) await writeLines(lines.splice(0), level, to);
    },
  };
}

/** winston takes 7 ms to load, so it is loaded only if there are lines to write. */
export function loadWinston(): Promise<typeof import('winston')> {
  return import('winston');
}

function levelFrom(text: string | undefined): LogLevel {
  return LOG_LEVELS.find(level => level === text) ?? 'warn';
}

async function writeLines(
  lines: readonly Line[],
  level: LogLevel,
  write: (text: string) => void,
): Promise<void> {
  const { createLogger, format, transports } = await loadWinston();
  const { Writable } = await import('node:stream');
  const stream = new Writable({
    write(chunk, _encoding, done) {
      write(String(chunk));
      done();
    },
  });
  const logger = createLogger({
    level,
    format: format.combine(format.timestamp(), format.json()),
    transports: [new transports.Stream({ stream })],
  });
  for (const { level: lineLevel, message, fields } of lines) logger.log(lineLevel, message, fields);
  const finished = new Promise(resolve => logger.on('finish', resolve));
  logger.end();
  await finished;
}

function writeToStderr(text: string): void {
  try {
    // Writes to the descriptor, not to the process's stream: the streams cost 9 ms.
    writeSync(2, text);
  } catch {
    // Its reader is gone or does not read, or its disk is full: the call goes on, whose reply says what came of it.
  }
}

/**
 * Has a problem told once, until there is another one or none.
 * @returns what to call with the problem of each try, undefined for none
 */
export function changesOnly(tell: (problem: string) => void): (problem: string | undefined) => void {
  let told: string | undefined;
  return problem => {
    if (problem !== undefined && problem !== told) tell(problem);
    told = problem;
  };
}
