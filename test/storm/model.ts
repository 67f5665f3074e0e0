// What were the callers told, and what does that promise?
//
// The model holds no kernel state: only what was asked and how it was answered. Where the answers leave it open what must
// be there, the state is `unknown` and nothing is promised until the next ADD or DEL succeeds.

import type { Caller, NetLetter, Target } from './history.ts';
import { keyOf, LETTERS, NETS, PODS, SLOTS } from './networks.ts';

/**
 * `absent`: nothing is anywhere. `present`: everything is there. `whole`: either of the two, since an actor was allowed to
 * take it down. `unknown`: anything.
 */
export type State = 'absent' | 'present' | 'whole' | 'unknown';

/** A result as a plugin or the command printed it. */
export interface CniResult {
  readonly ips?: readonly { readonly address: string; readonly gateway?: string }[];
  readonly interfaces?: readonly {
    readonly name: string;
    readonly mac?: string;
    readonly sandbox?: string;
  }[];
}

/** What the callers know of one attachment. */
export interface Entry extends Target {
  state: State;
  /** Who made it, or last tried to. */
  by: Caller;
  slot: number;
  /** Which of the namespaces that have had this path it is in. */
  generation: number;
  /** Its path was given to another namespace during the ADD: it is in either of the two. */
  placeUnsure: boolean;
  result: CniResult | undefined;
  hostPort: number | undefined;
  /** A change of its port was killed: it has this one or the one that it was to get. */
  portUnsure: boolean;
  /** Its limit in bytes per second. Several after a change that was killed: it has one of these. Empty without a limit. */
  rates: readonly number[];
  /** The rule set was flushed since the ADD: ports are not promised until a repair. */
  damaged: boolean;
  /** Our journal has it on record. */
  journalled: boolean;
  /** A runtime took down what our command had made, and the record knows nothing of that. */
  staleRecord: boolean;
  /** Its lease was lost: the address may be handed out to another. */
  leaseLost: boolean;
  /** Made in an earlier boot: the next caller attaches the container again. */
  ofEarlierBoot: boolean;
  /** The last DEL that succeeded was the reference's: what only our plugins know of may be there. */
  byReference: boolean;
}

/** One path of a namespace. */
export interface Slot {
  readonly index: number;
  /** Counts the namespaces that have had the path. */
  generation: number;
  alive: boolean;
}

/** What is known of a node. */
export class Model {
  readonly entries = new Map<string, Entry>();
  readonly slots: Slot[] = [];
  /** The slot of each pod. */
  readonly slotOf = new Map<number, number>();
  /** Keys that callers knew of, one set for each round that has ended. */
  readonly known: ReadonlySet<string>[] = [];
  daemon: 'none' | 'running' = 'none';
  /** When the round began, two could have one address: what is added beside the other is not announced to neighbours. */
  mayShareAddress = false;
  swapped: { net: NetLetter; plugin: string } | undefined;

  constructor() {
    for (let pod = 0; pod < PODS; pod++) {
      for (const net of LETTERS) {
        const target = { pod, net };
        this.entries.set(keyOf(target), {
          ...target,
          ...{ state: 'absent', by: 'command', slot: 0, generation: 0, result: undefined },
          placeUnsure: false,
          ...{ hostPort: undefined, portUnsure: false, damaged: false, journalled: false, leaseLost: false },
          rates: ratesOf(net),
          ...{ ofEarlierBoot: false, byReference: false, staleRecord: false },
        });
      }
    }
    for (let index = 0; index < SLOTS; index++) this.slots.push({ index, generation: 0, alive: false });
  }

  entry(target: Target): Entry {
    const found = this.entries.get(keyOf(target));
    if (found === undefined) throw new Error(`unreachable: no entry ${keyOf(target)}`);
    return found;
  }

  slot(index: number): Slot {
    const found = this.slots[index];
    if (found === undefined) throw new Error(`unreachable: no slot ${index}`);
    return found;
  }

  /** Whether the namespace of the attachment is the one that its path leads to. */
  isInPlace({ slot, generation }: Entry): boolean {
    const { alive, generation: now } = this.slot(slot);
    return alive && generation === now;
  }

  list(...states: State[]): Entry[] {
    return [...this.entries.values()].filter(({ state }) => states.includes(state));
  }

  /** Attachments that a runtime would name as valid: all that may be there. */
  valid(net: NetLetter): Entry[] {
    return this.list('present', 'whole', 'unknown').filter(entry => entry.net === net);
  }

  /** Attachments of which anything may be there, in a namespace or with an address that others may meet. */
  othersWithAddress(entry: Entry, address: string): Entry[] {
    return this.list('present', 'whole', 'unknown').filter(other => {
      if (other === entry || other.net !== entry.net) return false;
      // Which address a failed ADD got is unknown.
      return addressesOf(other).includes(address) || (other.leaseLost && other.state === 'unknown');
    });
  }

  /** Takes down what holds when a round begins. */
  beginRound(): void {
    this.mayShareAddress = this.list('present', 'whole', 'unknown').some(({ leaseLost }) => leaseLost);
  }

  /** Remembers what is known now, for lists that are old when they are used. */
  endRound(): void {
    this.known.push(new Set(this.list('present', 'whole', 'unknown').map(keyOf)));
  }
}

/** The limit that a list gives. */
export function ratesOf(net: NetLetter): readonly number[] {
  const { rate } = NETS[net];
  return rate === undefined ? [] : [rate];
}

/** Whether a change of it was killed, so that it may be as before. */
export function isUnsure({ portUnsure, rates }: Pick<Entry, 'portUnsure' | 'rates'>): boolean {
  return portUnsure || rates.length > 1;
}

/** Addresses that the result named, without prefix length. */
export function addressesOf({ result }: Pick<Entry, 'result'>): string[] {
  return (result?.ips ?? []).map(({ address }) => address.replace(/\/.*/, ''));
}

/** Names of devices of the host that the result named, without the bridge. */
export function hostDevicesOf({ result, net }: Pick<Entry, 'result' | 'net'>): string[] {
  return (result?.interfaces ?? [])
    .filter(({ sandbox, name }) => !sandbox && name !== NETS[net].bridge)
    .map(({ name }) => name);
}
