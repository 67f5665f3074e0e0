// Which values do the kernel parameters have that plugins are known to change?
import { inNetns, type Netns } from '../../sys/netns.ts';
import { findSysctl } from '../../sys/sysctl.ts';
import type { StateObject } from './object.ts';

/** Forwarding is what turns a host into a router. */
const WATCHED = ['net/ipv4/ip_forward', 'net/ipv6/conf/all/forwarding', 'net/ipv4/conf/all/route_localnet'];

/** Values of the parameters that every lab watches and of those that the configuration names. */
export function readSysctls(netns: Netns, more: readonly string[]): StateObject[] {
  return inNetns(netns, () =>
    [...new Set([...WATCHED, ...more])].flatMap(path => {
      const value = findSysctl(path);
      if (value === undefined) return [];
      // Never judged: they belong to the whole host, or end with their namespace.
      return [
        { key: `sysctl ${path}`, words: `${path} = ${value}`, state: { [path]: value.replace(/\s+/g, ' ') } },
      ];
    }),
  );
}
