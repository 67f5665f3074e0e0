// How are netlink messages rendered for people?
import { writeSync } from 'node:fs';
import { type Ip, renderIp } from '../net/ip.ts';
import { renderErrno } from '../sys/errno.ts';
import { type Envelope, type Layout, NLMSG_DONE, NLMSG_ERROR, nlmsgerr } from './codec.ts';

/** Numbers of the protocols in use (linux/netlink.h). */
const PROTOCOLS = { NETLINK_ROUTE: 0, NETLINK_NETFILTER: 12 } as const;

/** linux/netlink.h, nlmsg_flags: the meaning of the lower byte is always the same. */
const FLAGS: Readonly<Record<number, string>> = {
  1: 'REQUEST',
  2: 'MULTI',
  4: 'ACK',
  8: 'ECHO',
  16: 'DUMP_INTR',
  32: 'DUMP_FILTERED',
};
/** The meaning of the upper byte depends on the type of request. */
const NEW_FLAGS: Readonly<Record<number, string>> = {
  256: 'REPLACE',
  512: 'EXCL',
  1024: 'CREATE',
  2048: 'APPEND',
};
const GET_FLAGS: Readonly<Record<number, string>> = { 256: 'ROOT', 512: 'MATCH' };
const ACK_FLAGS: Readonly<Record<number, string>> = { 256: 'CAPPED', 512: 'ACK_TLVS' };

type AnyLayout = Pick<Layout<object, object>, 'decode'>;

const known = new Map<string, { name: string; layout: AnyLayout }>();

/**
 * Makes messages readable in traces. It is called where a message's table is defined, so traces know only the tables that a
 * plugin loads.
 * @param names by message type: `{ 16: 'RTM_NEWLINK' }`
 * @returns the layout itself
 */
export function traced<L extends AnyLayout>(
  protocol: keyof typeof PROTOCOLS,
  names: Readonly<Record<number, string>>,
  layout: L,
): L {
  for (const [type, name] of Object.entries(names))
    known.set(`${PROTOCOLS[protocol]} ${type}`, { name, layout });
  return layout;
}

/** Prints messages to standard error when `CATENA_NETLINK_TRACE` is set, which is often the only way to explain an EINVAL. */
export function traceMessages(
  direction: 'send' | 'recv',
  protocol: number,
  messages: readonly Envelope[],
): void {
  if (!process.env.CATENA_NETLINK_TRACE) return;
  for (const message of messages) writeSync(2, `${renderMessage(direction, protocol, message)}\n`);
}

/**
 * Renders one message as a box: its envelope, then one line per field and attribute, with the names from our tables.
 * Attributes that are not in a table appear as bytes, as does the body of a message without a table, or with one that does
 * not fit.
 */
export function renderMessage(direction: 'send' | 'recv', protocol: number, message: Envelope): string {
  const { name, lines } = describe(protocol, message);
  const title = `${direction} ${name} ${renderFlags(name, message.flags)} seq=${message.seq}`;
  return [`┌ ${title}`, ...lines.map(line => `│ ${line}`), '└'].join('\n');
}

function describe(protocol: number, message: Envelope): { name: string; lines: string[] } {
  if (message.type === NLMSG_ERROR) {
    // The kernel's message, if any, is in the error that the caller gets.
    const { error, request } = nlmsgerr.decode(message.body);
    const lines = [`reply to seq=${request.seq}: ${error === 0 ? 'done' : renderErrno(-error)}`];
    return { name: 'NLMSG_ERROR', lines };
  }
  if (message.type === NLMSG_DONE) return { name: 'NLMSG_DONE', lines: [] };
  const entry = known.get(`${protocol} ${message.type}`);
  if (entry === undefined) {
    return { name: `protocol=${protocol} type=${message.type}`, lines: hexRows(message.body) };
  }
  try {
    const { header, attrs } = entry.layout.decode(message.body);
    return { name: entry.name, lines: [...headerLine(header), ...renderFields(attrs)] };
  } catch (thrown) {
    return { name: entry.name, lines: [(thrown as Error).message, ...hexRows(message.body)] };
  }
}

/** The non-zero fields of the fixed header. */
function headerLine(header: object): string[] {
  const said = Object.entries(header).filter(([, value]) => value !== 0);
  return said.length ? [`(${said.map(([key, value]) => `${key} ${value}`).join(', ')})`] : [];
}

function renderFields(values: object): string[] {
  return Object.entries(values).flatMap(([key, value]) => renderField(key, value));
}

function renderField(key: string, value: unknown): string[] {
  if (key === 'unknown' && Array.isArray(value)) {
    return value.map(({ type, bytes }) => `unknown ${type}: ${hex(bytes)}`);
  }
  if (Array.isArray(value)) return value.flatMap((item, i) => renderField(`${key}[${i}]`, item));
  if (typeof value === 'string') return [`${key}: ${JSON.stringify(value)}`];
  if (value instanceof Uint8Array) return [`${key}: ${hex(value)}`];
  if (isIp(value)) return [`${key}: ${renderIp(value)}`];
  if (typeof value === 'object' && value !== null)
    return [key, ...renderFields(value).map(line => `  ${line}`)];
  return [`${key}: ${value}`];
}

function isIp(value: unknown): value is Ip {
  return typeof value === 'object' && value !== null && 'family' in value && 'value' in value;
}

function renderFlags(name: string, flags: number): string {
  const upper = name === 'NLMSG_ERROR' ? ACK_FLAGS : name.includes('GET') ? GET_FLAGS : NEW_FLAGS;
  const set = Object.entries({ ...FLAGS, ...upper }).filter(([bit]) => flags & Number(bit));
  const rest = set.reduce((left, [bit]) => left & ~Number(bit), flags);
  return [...set.map(([, word]) => word), ...(rest ? [`0x${rest.toString(16)}`] : [])].join('|') || '0';
}

function hexRows(body: Uint8Array): string[] {
  const rows: string[] = [];
  for (let at = 0; at < body.length; at += 16) {
    const row = body.subarray(at, at + 16);
    const signs = Array.from(row, byte => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.'));
    rows.push(`${at.toString(16).padStart(4, '0')}  ${hex(row).padEnd(47)}  ${signs.join('')}`);
  }
  return rows;
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join(' ');
}
