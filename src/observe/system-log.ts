// How does a log line look to syslog and to the journal?
import type { LogLevel } from '../log.ts';
import type { LogLine } from './log-lines.ts';

/** Where a syslog daemon takes datagrams; systemd's journal does so there, too. */
export const SYSLOG_SOCKET = '/dev/log';

/** Where systemd's journal takes lines with fields. */
export const JOURNAL_SOCKET = '/run/systemd/journal/socket';

/** Our name in the log. */
const IDENTIFIER = 'catena';

/** RFC 5424, section 6.2.1: severities, and the facility of system daemons. */
const SEVERITY: Readonly<Record<LogLevel, number>> = { error: 3, warn: 4, info: 6, debug: 7 };
const FACILITY_DAEMON = 3;

/** Syslog daemons cut longer lines, wherever (RFC 3164 asks for 1024; rsyslog takes 8 KiB, the journal more). */
const MAX_SYSLOG_BYTES = 8_000;

/** A datagram of the journal that is larger than a socket's buffer is refused as a whole. */
const MAX_VALUE_BYTES = 32 * 1024;

/**
 * A line as syslog daemons take it on their local socket: `<30>Nov 21 09:40:25 catena[7]: {…}` (RFC 3164, without the
 * host's name, as the C library's syslog() writes it). What follows the name is one line of JSON.
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
 * A line as the journal's native protocol has it, every field with a name of its own: `container_id` is found by
 * `journalctl CATENA_CONTAINER_ID=…` (systemd, "Native Journal Protocol").
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

/** `NAME=value`, or with its length ahead where a line break would end it. */
function encodePair(name: string, value: string): Uint8Array {
  const bytes = Buffer.from(value).subarray(0, MAX_VALUE_BYTES);
  if (!bytes.includes(0x0a)) return Buffer.concat([Buffer.from(`${name}=`), bytes, LINE_END]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes.length));
  return Buffer.concat([Buffer.from(`${name}\n`), length, bytes, LINE_END]);
}

const LINE_END = Buffer.from('\n');
