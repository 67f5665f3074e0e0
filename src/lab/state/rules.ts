// Which routing policy rules exist in a namespace?
import { listRules, renderRule } from '../../netlink/rtnl/rule.ts';
import type { NetlinkSocket } from '../../netlink/socket.ts';
import type { StateObject } from './object.ts';

/** Rules of both families. */
export function readRules(socket: NetlinkSocket): StateObject[] {
  return listRules(socket).map(rule => {
    const words = `IPv${rule.family} rule ${renderRule(rule)}`;
    return { key: words, words, shape: `IPv${rule.family} rule` };
  });
}
