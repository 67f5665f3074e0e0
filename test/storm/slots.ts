// In which namespace does a container get its next interface?

import type { Caller } from './history.ts';
import type { Entry, Model } from './model.ts';
import { keyOf } from './networks.ts';
import type { Random } from './random.ts';

/** What is known when a namespace is chosen. */
interface Choice {
  readonly model: Model;
  readonly random: Random;
  /** One is wanted where another container has the interface. */
  readonly collides: boolean;
  /** Slots that pods get in this round, and the other way round. */
  readonly slotOf: ReadonlyMap<number, number>;
  readonly podOf: ReadonlyMap<number, number>;
  /** Keys that an action of this round works on. */
  readonly used: ReadonlySet<string>;
}

/** Mostly a namespace where no other container is; undefined when there is none. */
export function findSlot(entry: Entry, by: Caller | undefined, choice: Choice): number | undefined {
  const { model, random, collides, slotOf, podOf, used } = choice;
  if (entry.state === 'present') return entry.slot;
  // A container has one namespace; where that is gone, its attachments go before it gets another.
  const all = model.list('present', 'whole', 'unknown');
  const own = all.filter(one => one.pod === entry.pod && !one.ofEarlierBoot);
  if (own.some(one => !model.isInPlace(one))) return undefined;
  const bound = own[0]?.slot ?? slotOf.get(entry.pod);
  const alive = model.slots
    .filter(({ alive, index }) => alive && (bound === undefined || index === bound))
    .map(({ index }) => index);
  const others = all.filter(one => one.pod !== entry.pod);
  const inPlace = (index: number) => others.filter(one => one.slot === index && model.isInPlace(one));
  const quiet = alive.filter(index => [undefined, entry.pod].includes(podOf.get(index)));
  const empty = quiet.filter(index => inPlace(index).length === 0);
  // The reference goes by the name of the interface alone: no other actor may be there, and none may come later. An ADD that ran
  // while the namespace was made again may have found the new one, though its entry names the one before.
  if (by === 'reference') {
    const safe = empty.filter(index => !others.some(one => one.slot === index));
    return safe.length ? random.pick(safe) : undefined;
  }
  if (collides) {
    const isInTheWay = (one: Entry) =>
      one.net === entry.net && one.state === 'present' && one.by !== 'reference' && !used.has(keyOf(one));
    const taken = quiet.filter(index => inPlace(index).some(isInTheWay));
    if (taken.length) return random.pick(taken);
  }
  return empty.length ? random.pick(empty) : undefined;
}
