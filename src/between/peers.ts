// On which other node is a pod with this address?
import { type Cidr, cidrContains, parseIp } from '../net/ip.ts';
import { type BetweenNote, readNote } from './note.ts';

/** A node, and the block of it that has an address. */
export interface Peer {
  readonly node: string;
  readonly block: Cidr;
}

/** Finds the other node whose block has an address; the smallest block counts. */
export type FindPeer = (address: string) => Peer | undefined;

/** From the nodes that the daemon of the run directory was told last; none, if it keeps no routes, or this user may not read the note. */
export function peersIn(runDir: string): FindPeer {
  let note: BetweenNote | undefined;
  try {
    note = readNote(runDir);
  } catch {
    return () => undefined;
  }
  const { own, nodes = [] } = note ?? {};
  const peers = nodes.flatMap(({ name: node, blocks }) => blocks.map(block => ({ node, block })));
  return address => {
    const ip = parseIp(address);
    const those = peers.filter(({ block }) => cidrContains(block, ip));
    const [first] = those.sort((a, b) => b.block.prefix - a.block.prefix);
    return first?.node === own ? undefined : first;
  };
}
