// What happened on a node, round by round, so that it can be run again and made shorter?

import type { Tally } from './tally.ts';

/** Which attachment: the number of the pod, and the letter of the network. */
export interface Target {
  readonly pod: number;
  readonly net: NetLetter;
}

/** `a` and `b`: see networks.ts. `f` has a foreign IPAM plugin and a foreign chained plugin. */
export type NetLetter = 'a' | 'b' | 'f' | 'm' | 'p' | 't';

/** Who calls: our command, or a runtime that calls plugins one by one, ours or the reference's. */
export type Caller = 'command' | 'plugins' | 'reference';

/** What any action may have besides. */
interface Common {
  /** Milliseconds after the beginning of its round. */
  readonly at: number;
}

interface OnAttachment extends Common, Target {
  readonly by: Caller;
  /** The number of the namespace whose path the caller names. */
  readonly slot: number;
  /** The caller is killed this many milliseconds after it was started. */
  readonly killMs?: number;
  /** The caller's working directory has been deleted. */
  readonly noCwd?: boolean;
}

/** How a foreign plugin answers: it hangs until the round lets it go, then succeeds, fails, or its caller is killed first. */
export type Foreign = 'late' | 'fail' | 'killed';

export interface Add extends OnAttachment {
  readonly kind: 'add';
  readonly hostPort?: number;
  readonly foreign?: Foreign;
  /** `catena attach`: the container runs, by its attachment to another network. */
  readonly running?: true;
}

export interface Check extends OnAttachment {
  readonly kind: 'check';
}

export interface Del extends OnAttachment {
  readonly kind: 'del';
  /** The caller knows that the namespace is gone, and names none. */
  readonly noNetns?: boolean;
  /** `catena detach`. */
  readonly running?: true;
  /** The foreign IPAM plugin answers that it failed, as long as the round lasts. */
  readonly foreign?: 'stuck';
  /** `--forget`: that does not count. */
  readonly forget?: true;
}

/** `catena set`: another port of the host leads to the container, its limits are others, or both at once. */
export interface Change extends OnAttachment {
  readonly kind: 'set';
  readonly hostPort?: number;
  /** Bytes per second in each direction. */
  readonly rate?: number;
}

export interface Gc extends Common {
  readonly kind: 'gc';
  readonly net: NetLetter;
  /** `now`: all that the callers know of at its start. `old`: what they knew some rounds ago. */
  readonly list: 'now' | 'old';
  /** Pods that are left out of the list: their runtime has forgotten them. */
  readonly forget: readonly number[];
  readonly killMs?: number;
}

export interface Upkeep extends Common {
  /** `stranger`: a repair in another network namespace, which only says what it would do. */
  readonly kind: 'repair' | 'stranger';
  readonly net: NetLetter;
  readonly killMs?: number;
}

export interface Swap extends Common {
  readonly kind: 'swap';
  readonly net: NetLetter;
  readonly plugin: string;
  readonly undo?: boolean;
}

export interface DaemonAct extends Common {
  readonly kind: 'daemon';
  readonly act: 'start' | 'stop' | 'kill' | 'freeze' | 'second' | 'upgrade';
  /** The one that starts repairs what others damage. */
  readonly watch?: true;
}

export interface NamespaceAct extends Common {
  readonly kind: 'namespace';
  readonly act: 'remove' | 'remake';
  readonly slot: number;
}

export interface Loss extends Common {
  readonly kind: 'loss';
  /** `rules`: `nft flush ruleset`. `future`: files are dated an hour ahead, as when the clock was set back. */
  readonly what: 'rules' | 'run' | 'journal' | 'leases' | 'boot' | 'future';
}

export type Action = Add | Check | Del | Change | Gc | Upkeep | Swap | DaemonAct | NamespaceAct | Loss;

/** Actions that are started together; the next round begins when all have ended and their traces were looked at. */
export type Round = readonly Action[];

/** What replays a run. */
export interface History {
  readonly seed: number;
  readonly rounds: readonly Round[];
}

/** Something that must not be. */
export interface Violation {
  /** Which rule was broken, without names: the same for the same fault. */
  readonly rule: string;
  /** What was found. */
  readonly text: string;
}

/** What one run on one node did and found. */
export interface NodeReport {
  readonly seed: number;
  readonly steps: number;
  readonly rounds: number;
  /** Actions by kind and caller, and how many of them failed. */
  readonly kinds: Readonly<Tally>;
  readonly violations: readonly Violation[];
  readonly history: History;
  /** Each action with how it ended, for a person to read. */
  readonly log: readonly string[];
  readonly seconds: number;
}

/** The action in few words. */
export function describeAction(action: Action): string {
  const { kind, at, ...rest } = action;
  const words = Object.entries(rest).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  return `+${at}ms ${kind} ${words.join(' ')}`;
}

/** The rounds as text. */
export function describeRounds(rounds: readonly Round[]): string[] {
  return rounds.flatMap((round, i) => [
    `round ${i + 1}`,
    ...round.map(action => `  ${describeAction(action)}`),
  ]);
}
