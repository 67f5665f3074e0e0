// What does a log line look like in syslog and in the journal?
import type { LogLevel } from '../log.ts';
import type { LogLine } from './log-lines.ts';

/** The socket of a syslog daemon; systemd's journal also listens there. */
export const SYSLOG_SOCKET = '/dev/log';

/** The socket on which systemd's journal takes lines with fields. */
export const JOURNAL_SOCKET = '/run/systemd/journal/socket';

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

const LINE_END = Buffer.from('\n');
