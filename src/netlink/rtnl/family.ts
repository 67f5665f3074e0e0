// What is the kernel's number of an address family?
import type { Ip } from '../../net/ip.ts';

/** sys/socket.h */
export const AF_INET = 2;
export const AF_INET6 = 10;

/** AF_INET or AF_INET6 for an address. */
export function addressFamily(ip: Ip): number {
  return ip.family === 4 ? AF_INET : AF_INET6;
}
