// Which addresses do masquerading and redirecting choose?
import { parseIp } from '../../net/ip.ts';
import type { Passage, Translation } from './passage.ts';

/** The source becomes an address of the outgoing device. */
export function masqueradeAs(passage: Passage, port?: number): Translation | undefined {
  const { oif, packet } = passage;
  const ip = oif && passage.addressOf(oif, packet.src.family);
  return ip && { side: 'src', ip, ...(port === undefined ? {} : { port }) };
}

/** The destination becomes this host: loopback for its own packets, else the address of the incoming device. */
export function redirectTo(passage: Passage, port?: number): Translation | undefined {
  const { hook, iif, packet } = passage;
  const { family } = packet.src;
  const loopback = parseIp(family === 4 ? '127.0.0.1' : '::1');
  const ip = hook === 'output' ? loopback : iif && passage.addressOf(iif, family);
  return ip && { side: 'dst', ip, ...(port === undefined ? {} : { port }) };
}
