// How is one round run on a node, and what is wrong after it?

import fs from 'node:fs';
import { stretched } from '../helpers/deadline.ts';
import { callCommand, change, collect, keepUp, swap } from './actors/command.ts';
import { Daemons } from './actors/daemons.ts';
import { openGates, removeGates, setGates } from './actors/gates.ts';
import { lose } from './actors/losses.ts';
import { Namespaces } from './actors/namespaces.ts';
import { OK, type Outcome, SKIPPED } from './actors/outcome.ts';
import * as runtime from './actors/runtime.ts';
import {
  type Action,
  type Add,
  type Change,
  type Check,
  type Del,
  describeAction,
  type Round,
  type Swap,
  type Violation,
} from './history.ts';
import { compare } from './invariants.ts';
import { Looker } from './look.ts';
import { type Entry, hostDevicesOf, Model } from './model.ts';
import { keyOf, LAN, noteOf, SLOTS } from './networks.ts';
import { holdersOfNamespaces, processes, signal, tool, waitFor } from './node.ts';
import type { Place } from './place.ts';
import { findTakenService, openService, writeService } from './service.ts';
import { count, kindOf, type Tally } from './tally.ts';
import { findSilent } from './traffic.ts';
import { type Done, findWrongChecks, isSound, settle } from './transitions.ts';

/** Longest time that work without a caller may take to end. */
const STRAGGLERS_MS = 15_000;

/**
 * How long what hangs for the others hangs at most: longer than their deadline, so that a call that waits for another container's
 * foreign plugin is found.
 */
const HOLD_MS = 16_000;
/** A repair that is under way when a round ends. */
const REPAIR_MS = 8_000;
/** Beside a frozen daemon each plugin takes seconds, and what is held has a deadline, too. */
const HOLD_BESIDE_FROZEN_MS = 8_000;
/** The kernel takes namespaces apart one after the other, for all nodes, and waits for grace periods in between. */
const NAMESPACES_MS = 60_000;

/** One node while a history is run on it. */
export class Driver {
  readonly model = new Model();
  readonly namespaces = new Namespaces(this.model);
  readonly daemons: Daemons;
  readonly looker = new Looker(this.namespaces);
  readonly log: string[] = [];
  readonly kinds: Tally = {};
  steps = 0;
  readonly #place: Place;
  readonly #features: ReadonlySet<string>;
  readonly #base: ReadonlySet<number>;
  /** Attachments whose ADD has begun in this round. */
  readonly #begun = new Set<string>();
  /** Notes of attachments whose namespace was gone when the round began. */
  #dead: ReadonlySet<string> = new Set();

  constructor(place: Place, features: ReadonlySet<string>) {
    this.#features = features;
    this.#place = place;
    this.daemons = new Daemons(place);
    this.#base = new Set(processes().map(({ pid }) => pid));
  }

  async open(): Promise<void> {
    this.#place.make();
    await tool(['ip', 'link', 'set', 'lo', 'up']);
    const { master, far, gateway } = LAN;
    await tool(['ip', 'link', 'add', master, 'type', 'veth', 'peer', 'name', far]);
    await tool(['ip', 'address', 'add', gateway, 'dev', far]);
    for (const end of [master, far]) await tool(['ip', 'link', 'set', end, 'up']);
    await openService();
    for (let slot = 0; slot < SLOTS; slot++) await this.namespaces.make(slot);
  }

  /** Runs a round to its end and looks at what it left. */
  async run(round: Round): Promise<Violation[]> {
    const all = Promise.withResolvers<void>();
    this.log.push(`round ${this.model.known.length + 1}`);
    this.#begun.clear();
    // An ADD that overlapped with the making of its namespace may be in the new one.
    const isDead = (entry: Entry) => !this.model.isInPlace(entry) && !entry.placeUnsure;
    this.#dead = new Set([...this.model.entries.values()].filter(isDead).map(noteOf));
    this.model.beginRound();
    const gates = setGates(round);
    const started = round.map(action => this.#act(action, all.promise));
    // What hangs until the others are done, and what takes so long that nothing should hang for it.
    const isHeld = (action: Action) =>
      (action.kind === 'add' && action.foreign !== undefined) ||
      // It finishes what was begun.
      (action.kind === 'daemon' && (action.act === 'freeze' || action.act === 'stop')) ||
      // It plays whole lives of containers.
      action.kind === 'swap' ||
      // It may delete another attachment of a container whose ADD hangs, and waits for that.
      (action.kind === 'gc' && action.list === 'old');
    const free = Promise.all(started.filter((_, i) => !isHeld(round[i] as Action)));
    const standstill = gates.length > 0 ? this.daemons.findStandstill(all.promise) : undefined;
    const isFrozen = round.some(action => action.kind === 'daemon' && action.act === 'freeze');
    await Promise.race([free, Bun.sleep(stretched(isFrozen ? HOLD_BESIDE_FROZEN_MS : HOLD_MS))]);
    all.resolve();
    await openGates(gates, started);
    const done = await Promise.all(started);
    removeGates();
    const violations = done.flatMap(({ outcome }) => outcome.violations ?? []);
    violations.push(...((await standstill) ?? []));
    violations.push(...done.flatMap(({ outcome }) => this.#deadHolder(outcome)));
    settle(this.model, done);
    violations.push(...findWrongChecks(this.model, done));
    if (round.some(action => action.kind === 'loss' && action.what === 'run')) {
      for (const text of await this.daemons.endAll())
        violations.push({ rule: 'daemon: it does not end', text });
    }
    violations.push(...(await this.#outwait()), ...(await this.#outwaitNamespaces()));
    violations.push(...(await this.judge(round)));
    this.model.daemon = this.daemons.isServing ? 'running' : 'none';
    this.model.endRound();
    return violations;
  }

  /** Compares promises and kernel now. A namespace that is empty and was left alone is not looked at. */
  async judge(round: Round): Promise<Violation[]> {
    const worked = new Set(round.flatMap(action => ('slot' in action ? [action.slot] : [])));
    for (const { slot } of this.model.list('present', 'whole', 'unknown')) worked.add(slot);
    const slots = this.model.slots.filter(({ alive, index }) => alive && worked.has(index));
    const look = async () => compare(this.model, await this.looker.look(slots.map(({ index }) => index)));
    let found = await look();
    // What a repair puts back while a runtime deletes the attachment, the daemon deletes again.
    const giveUpAt = performance.now() + REPAIR_MS;
    while (found.length > 0 && this.daemons.repairs && performance.now() < giveUpAt) {
      await Bun.sleep(200);
      found = await look();
    }
    if (found.length) return found;
    const watchesNeighbours = this.#features.has('neighbour') && !this.model.mayShareAddress;
    const taken = await findTakenService();
    return [...taken, ...(await findSilent(this.model, this.namespaces, watchesNeighbours))];
  }

  /** A port was refused because of an attachment whose namespace was gone before the round, and that none began again. */
  #deadHolder({ said = '' }: Outcome): Violation[] {
    const [, note = ''] = /^code 100: .*"(catena:[^"]+)" holds/.exec(said) ?? [];
    const isBegun = [...this.model.entries.values()].some(
      entry => noteOf(entry) === note && this.#begun.has(keyOf(entry)),
    );
    if (!this.#dead.has(note) || isBegun) return [];
    return [{ rule: 'a dead container holds a port', text: said }];
  }

  async #act(action: Action, others: Promise<void>): Promise<Done> {
    await Bun.sleep(action.at);
    const isOld = action.kind === 'gc' && action.list === 'old';
    const now = new Set(this.model.list('present', 'whole', 'unknown').map(keyOf));
    const forgotten = action.kind === 'gc' ? action.forget.map(pod => keyOf({ pod, net: action.net })) : [];
    const listed = isOld ? (this.model.known.at(-4) ?? now) : new Set([...now, ...this.#begun]);
    const known = new Set([...listed].filter(key => !forgotten.includes(key) || this.#begun.has(key)));
    const begun = new Set(this.#begun);
    const isOn = ['add', 'del', 'check', 'set'].includes(action.kind) && 'slot' in action && 'pod' in action;
    const generation = isOn ? this.model.slot(action.slot).generation : 0;
    if (action.kind === 'add') this.#begun.add(keyOf(action));
    const wasSound = isOn && isSound(this.model.entry(action));
    const started = performance.now();
    const outcome = await this.#perform(action, known, others);
    const ended = performance.now();
    this.#note(action, outcome, ended - started);
    return { action, outcome, known, begun, started, ended, generation, wasSound };
  }

  async #perform(action: Action, known: ReadonlySet<string>, others: Promise<void>): Promise<Outcome> {
    switch (action.kind) {
      case 'add':
      case 'check':
      case 'del':
      case 'set':
        return this.#call(action);
      case 'gc':
        return collect(this.#place, this.model, action, known);
      case 'repair':
      case 'stranger':
        return keepUp(this.#place, action);
      case 'swap':
        return this.#swap(action);
      case 'daemon':
        if (action.act === 'freeze') return this.daemons.freeze(others);
        if (action.act === 'upgrade' && this.model.swapped) return SKIPPED;
        return this.daemons.act(action.act, action.watch);
      case 'namespace':
        return action.act === 'remove'
          ? this.namespaces.remove(action.slot)
          : this.namespaces.remake(action.slot);
      case 'loss':
        return this.#lose(action.what);
    }
  }

  #call(action: Add | Check | Del | Change): Promise<Outcome> | Outcome {
    if (action.kind !== 'del' && !this.model.slot(action.slot).alive) return SKIPPED;
    const { state } = this.model.entry(action);
    if (action.kind === 'set') return state === 'present' ? change(this.#place, action) : SKIPPED;
    if (action.kind === 'check' && state !== 'present') return SKIPPED;
    if (action.kind === 'add') {
      // A runtime attaches what it has no attachment of.
      const isFresh = state === 'absent' || this.model.entry(action).ofEarlierBoot;
      if (action.by !== 'command' && !isFresh) return SKIPPED;
    }
    if (action.by === 'command') return callCommand(this.#place, action);
    if (action.kind === 'add') return runtime.add(this.#place, action);
    return action.kind === 'del' ? runtime.del(this.#place, action) : runtime.check(this.#place, action);
  }

  async #swap(action: Swap): Promise<Outcome> {
    const { net, plugin, undo } = action;
    if ((this.model.swapped !== undefined) !== (undo === true)) return SKIPPED;
    const outcome = await swap(this.#place, action);
    if (outcome.how === 'ok') this.model.swapped = undo ? undefined : { net, plugin };
    return outcome;
  }

  async #lose(what: Parameters<typeof lose>[0]): Promise<Outcome> {
    if (what === 'boot') {
      await this.daemons.killAll();
      for (const { index } of this.model.slots) await this.namespaces.remove(index);
    }
    await lose(what);
    if (what === 'boot' || what === 'rules') await writeService();
    if (what === 'boot') {
      for (const { index } of this.model.slots) await this.namespaces.make(index);
    }
    return OK;
  }

  #note(action: Action, { how, said, violations = [] }: Outcome, ms: number): void {
    const more = [said, ...violations.map(({ rule }) => `VIOLATION ${rule}`)].filter(Boolean).join('; ');
    this.log.push(`  ${describeAction(action)} -> ${how} in ${ms.toFixed(0)} ms${more ? `: ${more}` : ''}`);
    if (how === 'skipped') return;
    count(this.kinds, kindOf(action), { done: 1, failed: how === 'failed' ? 1 : 0 });
    this.steps += 1;
  }

  /** Waits for what still works without a caller: workers of a runner that was killed, plugins of those. */
  async #outwait(): Promise<Violation[]> {
    if (await waitFor(() => this.#stragglers().length === 0, STRAGGLERS_MS)) return [];
    const left = this.#stragglers();
    for (const { pid } of left) signal(pid, 'SIGKILL');
    const text = left.map(({ pid, command }) => `${pid}: ${command}`).join('; ');
    return [{ rule: 'a process is left behind', text }];
  }

  /** The kernel takes a namespace apart in the background, and not at all while a process holds it. */
  async #outwaitNamespaces(): Promise<Violation[]> {
    // The reference's DEL succeeds where it finds another namespace under the path, or none, and leaves the pair to the kernel.
    const isOfReference = ({ by, byReference }: Entry) => byReference || by === 'reference';
    const all = this.model.list('present', 'whole', 'absent');
    const dead = all.filter(
      one => !this.model.isInPlace(one) && (one.state !== 'absent' || isOfReference(one)),
    );
    const pairs = dead.flatMap(one => hostDevicesOf(one).filter(name => name.startsWith('veth')));
    const left = () => pairs.filter(name => fs.existsSync(`/proc/sys/net/ipv4/conf/${name}`));
    if (await waitFor(() => left().length === 0, NAMESPACES_MS, 20)) return [];
    return [
      {
        rule: 'a namespace lives on after its removal',
        text: `it has the other ends of ${left().join(', ')}; ${holdersOfNamespaces()}`,
      },
    ];
  }

  #stragglers(): { pid: number; command: string }[] {
    const all = processes().filter(({ zombie }) => !zombie);
    const known = new Set([
      ...this.#base,
      ...this.daemons.pids,
      ...this.namespaces.pids,
      ...this.looker.pids,
    ]);
    const parents = new Map(all.map(({ pid, parent }) => [pid, parent]));
    const isKnown = (pid: number): boolean => {
      const parent = parents.get(pid);
      if (known.has(pid)) return true;
      return parent !== undefined && parent !== 1 && parent !== process.pid && isKnown(parent);
    };
    return all.filter(({ pid }) => !isKnown(pid));
  }
}
