// What do the messages between us and the kernel look like to a person?
import { writeSync } from 'node:fs';
import type { Envelope } from './codec/message.ts';

/** Prints messages to standard error when `CATENA_NETLINK_TRACE` is set; EINVAL is hard to understand without. */
export function traceMessages(
  direction: 'send' | 'recv',
  protocol: number,
  messages: readonly Envelope[],
): void {
  if (!process.env.CATENA_NETLINK_TRACE) return;
  for (const message of messages) writeSync(2, `${renderMessage(direction, protocol, message)}\n`);
}

/** One message as a box: its envelope, then the body in rows of sixteen bytes. */
export function renderMessage(direction: 'send' | 'recv', protocol: number, message: Envelope): string {
  const title = `${direction} protocol=${protocol} type=${message.type} flags=0x${message.flags.toString(16)} seq=${message.seq}`;
  const rows: string[] = [];
  for (let at = 0; at < message.body.length; at += 16) {
    const row = message.body.subarray(at, at + 16);
    const hex = Array.from(row, byte => byte.toString(16).padStart(2, '0')).join(' ');
    const text = Array.from(row, byte => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.')).join(
      '',
    );
    rows.push(`│ ${at.toString(16).padStart(4, '0')}  ${hex.padEnd(47)}  ${text}`);
  }
  return [`┌ ${title}`, ...rows, '└'].join('\n');
}
