// Which addresses do the pods of a node have at this moment? Read from /proc: without a program, and without a visit to their namespaces.

import fs from 'node:fs';
import { namesIn, tryRead } from '../../src/files/read-file.ts';
import { parseIp, renderIp } from '../../src/net/ip.ts';
import type { Machine } from '../helpers/machine.ts';

/** A network namespace with a process in it. */
export interface Living {
  /** `net:[4026531833]`. */
  readonly netns: string;
  readonly addresses: readonly string[];
}

/** Those of a node, without its own; none while it reboots. */
export function livingOn(machine: Machine): Living[] {
  const proc = machine.path('/proc');
  const own = netnsOf(proc, '1');
  if (own === undefined) return [];
  const found = new Map<string, readonly string[]>();
  for (const pid of namesIn(proc)) {
    if (!/^\d+$/.test(pid)) continue;
    const netns = netnsOf(proc, pid);
    if (netns === undefined || netns === own || found.has(netns)) continue;
    const [ipv4, ipv6] = ['fib_trie', 'if_inet6'].map(file => tryRead(`${proc}/${pid}/net/${file}`));
    // Without them the process has ended; another one of the namespace may be there.
    if (ipv4 !== undefined) found.set(netns, [...ipv4In(ipv4), ...ipv6In(ipv6 ?? '')]);
  }
  return Array.from(found, ([netns, addresses]) => ({ netns, addresses }));
}

/** The addresses in the kernel's routing tree: each is a local route of its own. */
export function ipv4In(tree: string): string[] {
  const found = new Set<string>();
  let last = '';
  for (const line of tree.split('\n')) {
    last = /\|-- (\S+)/.exec(line)?.[1] ?? last;
    if (/\/32 host LOCAL$/.test(line) && !last.startsWith('127.')) found.add(last);
  }
  return [...found];
}

/** The addresses in the kernel's list of IPv6, without those of a link and of the machine itself. */
export function ipv6In(list: string): string[] {
  return list.split('\n').flatMap(line => {
    const [, digits = '', scope = ''] = /^([\da-f]{32}) \S+ \S+ (\S+)/.exec(line) ?? [];
    return scope === '00' ? [renderIp(parseIp(digits.replace(/.{4}(?!$)/g, '$&:')))] : [];
  });
}

/** A zombie is in no namespace. */
function netnsOf(proc: string, pid: string): string | undefined {
  try {
    return fs.readlinkSync(`${proc}/${pid}/ns/net`);
  } catch {
    return undefined;
  }
}
