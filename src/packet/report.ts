// How does the walk report a hop?
import type { Packet } from '../doctor/filter/packet.ts';
import type { Hop, Step } from './hop.ts';
import type { Site } from './site.ts';

/** On the way back there is only one hop, the reply, and its evidence tells where it is. */
export function hop(
  site: Pick<Site, 'name'>,
  { isReply, isEstablished }: Pick<Packet, 'isReply' | 'isEstablished'>,
  name: Hop['name'],
  state: Hop['state'],
  evidence: string,
  mend?: string,
): Hop {
  const more = mend === undefined ? {} : { mend };
  if (isEstablished)
    return { name, at: site.name, state, evidence: `once the connection exists, ${evidence}`, ...more };
  if (!isReply) return { name, at: site.name, state, evidence, ...more };
  return {
    name: 'reply',
    at: site.name,
    state,
    evidence: state === 'passes' ? evidence : `${name}: ${evidence}`,
    ...more,
  };
}

/** A hop that may lead the packet elsewhere, so nothing behind it is certain. */
export function lost(
  site: Pick<Site, 'name'>,
  packet: Pick<Packet, 'isReply'>,
  name: Hop['name'],
  evidence: string,
): Step {
  return { ...hop(site, packet, name, 'unknown', evidence), isLast: true };
}
