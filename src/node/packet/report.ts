// How does the walk report a hop?
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import type { Packet } from '../doctor/filter/packet.ts';
import type { Site } from './site.ts';

/** One place that the packet passes. */
export type Hop = AnswerOf<'PacketWalk'>['hops'][number];

/** Behind the last one, it is not known where the packet goes. */
type Step = Hop & { readonly isLast?: true };

/** The walk as far as it goes: the value is what comes behind it. */
export type Walk<T = void> = Generator<Step, T>;

/** How a walk ended. */
export type Outcome = 'arrives' | 'stopped' | 'unknown';

/** Takes the hops up to the first one that stops the packet. */
export function walkOn(walk: Walk<boolean>): { readonly outcome: Outcome; readonly hops: Hop[] } {
  const hops: Hop[] = [];
  for (let step = walk.next(); ; step = walk.next()) {
    if (step.done) {
      const isSure = step.value && hops.every(({ state }) => state === 'passes');
      return { outcome: isSure ? 'arrives' : 'unknown', hops };
    }
    const { isLast, ...hop } = step.value;
    hops.push(hop);
    if (hop.state === 'stops') return { outcome: 'stopped', hops };
    if (isLast) return { outcome: 'unknown', hops };
  }
}

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
