// What happens in the next round, by chance and by what is known?

import type { Feature } from './features.ts';
import type { Action, Caller, Del, NetLetter, Round } from './history.ts';
import type { Entry, Model } from './model.ts';
import { HOST_PORTS, keyOf, LETTERS, NETS, ownPorts, RATES, SLOTS } from './networks.ts';
import type { Random } from './random.ts';
import { findSlot } from './slots.ts';

/**
 * Which kinds of action a round is made of, by weight. A swap tries the other plugin in a laboratory first, which takes as long
 * as a hundred other actions.
 */
const WEIGHTS = { attach: 72, gc: 6, upkeep: 4, swap: 0.05, daemon: 5, namespace: 6, loss: 1.5 };
/** Rounds with one action and nothing beside it. */
const ALONE = { run: 1, journal: 1, leases: 1, boot: 1.5 } as const;
const ALONE_SHARE = 0.035;
const MAX_ACTIONS = 12;
/** Repairs more often. */
const UPKEEP = ['repair', 'repair', 'repair', 'stranger'] as const;
/** Rounds in which only the reference's plugins work on the network that is shared with them. */
const REFERENCE_SHARE = 0.15;
const REFERENCE_LASTS = 0.6;
/** Share of the calls of such rounds that are on that network: within them an address has to come back and be handed out again. */
const REFERENCE_CALLS = 0.6;

/** Makes the rounds of one seed. */
export class Planner {
  readonly #random: Random;
  readonly #model: Model;
  readonly #features: ReadonlySet<string>;
  /** Keys that an action of this round works on. */
  #used = new Set<string>();
  #usedSlots = new Set<number>();
  /** Only the reference works on network `a`. */
  #isReferences = false;
  /** Slots that pods get in this round. */
  #slotOf = new Map<number, number>();
  /** Who gets an interface in a slot in this round. */
  #podOf = new Map<number, number>();

  constructor(random: Random, model: Model, features: ReadonlySet<string>) {
    this.#random = random;
    this.#model = model;
    this.#features = features;
  }

  next(): Round {
    const random = this.#random;
    this.#used = new Set();
    this.#usedSlots = new Set();
    this.#podOf = new Map();
    this.#slotOf = new Map();
    this.#isReferences =
      this.#has('reference') && random.chance(this.#isReferences ? REFERENCE_LASTS : REFERENCE_SHARE);
    if (random.chance(ALONE_SHARE)) {
      const what = random.weighted(ALONE);
      if (this.#has(what)) return [{ kind: 'loss', what, at: 0 }];
    }
    const actions: Action[] = [];
    const count = random.int(3, MAX_ACTIONS);
    for (let attempt = 0; attempt < 40 && actions.length < count; attempt++) actions.push(...this.#one());
    return this.#inTime(actions);
  }

  /** Puts the beginnings of a round's actions into an order that makes sense. */
  #inTime(actions: readonly Action[]): Action[] {
    const freeze = actions.find(action => action.kind === 'daemon' && action.act === 'freeze');
    const daemon = freeze ?? actions.find(action => action.kind === 'daemon');
    const hasGc = actions.some(action => action.kind === 'gc');
    return actions
      .filter(action => action.kind !== 'daemon' || action === daemon)
      .map(action => {
        // What is to be stopped is stopped first, so that all others begin after it.
        if (freeze) return { ...action, at: action === freeze ? 0 : action.at + 20 };
        const isLater = hasGc && action.kind === 'add' && this.#random.chance(0.7);
        return isLater ? { ...action, at: action.at + this.#random.int(50, 400) } : action;
      });
  }

  #has(feature: Feature): boolean {
    return this.#features.has(feature);
  }

  #at(): number {
    return this.#random.chance(0.5) ? 0 : this.#random.int(0, 150);
  }

  #one(): Action[] {
    switch (this.#random.weighted(WEIGHTS)) {
      case 'attach':
        return this.#attach();
      case 'gc':
        return this.#collect();
      case 'upkeep':
        return this.#upkeep();
      case 'swap':
        return this.#swap();
      case 'daemon':
        return this.#daemon();
      case 'namespace':
        return this.#namespace();
      case 'loss':
        return this.#loss();
    }
  }

  #attach(): Action[] {
    const free = [...this.#model.entries.values()].filter(entry => !this.#used.has(keyOf(entry)));
    if (free.length === 0) return [];
    // Each call for `b` takes five plugins.
    const often = free.filter(({ net }) => net !== 'b' || this.#random.chance(0.5));
    const shared = this.#isReferences && this.#random.chance(REFERENCE_CALLS) ? ofShared(free) : [];
    const entry = this.#random.pick(shared.length ? shared : often.length ? often : free);
    const actions = this.#isReferences && entry.net === 'a' ? this.#ofReference(entry) : this.#onEntry(entry);
    if (actions.length) this.#used.add(keyOf(entry));
    return actions;
  }

  #onEntry(entry: Entry): Action[] {
    const random = this.#random;
    if (entry.state === 'absent') return this.#pairOfAdds(entry) ?? this.#add(entry);
    if (entry.ofEarlierBoot && random.chance(0.5)) return this.#add(entry);
    if (entry.state === 'present' && this.#model.isInPlace(entry)) {
      const what = random.weighted({
        check: this.#has('check') ? 35 : 0,
        del: 45,
        again: 6,
        set: this.#maySet(entry),
      });
      if (what === 'check') return [this.#on(entry, 'check', entry.by)];
      if (what === 'set') return [this.#set(entry)];
      if (what === 'again' && entry.by === 'command') return this.#add(entry);
    }
    if (entry.state === 'unknown' && entry.by === 'command' && random.chance(0.15)) return this.#add(entry);
    return this.#pairOfDels(entry) ?? [this.#del(entry)];
  }

  /** What the reference does on the network that it shares with us; it knows nothing of our ports. */
  #ofReference(entry: Entry): Action[] {
    if (entry.state === 'absent') return this.#add(entry);
    const isPlain = entry.by !== 'command' && entry.hostPort === undefined && !entry.journalled;
    if (entry.state !== 'present' || !isPlain || !this.#model.isInPlace(entry)) return [];
    return [this.#on(entry, 'del', 'reference')];
  }

  #on<K extends 'add' | 'check' | 'del' | 'set'>(entry: Entry, kind: K, by: Caller) {
    const { pod, net, slot } = entry;
    const cwd = this.#has('cwd') && this.#random.chance(0.015) ? { noCwd: true } : {};
    const isKilled = kind !== 'check' && this.#has('kill') && this.#random.chance(0.08);
    const kill = isKilled ? { killMs: this.#random.int(3, by === 'command' ? 150 : 100) } : {};
    return { kind, pod, net, slot, by, at: this.#at(), ...kill, ...cwd } as const;
  }

  #add(entry: Entry, more: Partial<Action> = {}): Action[] {
    const random = this.#random;
    const by = this.#callerOf(entry);
    const slot = this.#slotFor(entry, by);
    if (by === undefined || slot === undefined) return [];
    const { hasPorts } = NETS[entry.net];
    const port = hasPorts && by !== 'reference' && this.#has('port') && random.chance(0.5);
    // Operations on one container wait for each other.
    const siblings = LETTERS.map(net => keyOf({ pod: entry.pod, net }));
    const isAlone = !siblings.some(key => this.#used.has(key));
    const foreign = entry.net === 'f' && isAlone && this.#has('foreign') && random.chance(0.5);
    const mode = foreign ? random.pick(['late', 'fail', 'killed'] as const) : undefined;
    this.#use(entry, slot);
    if (foreign) for (const key of siblings) this.#used.add(key);
    const add = {
      ...this.#on({ ...entry, slot }, 'add', by),
      ...(port ? { hostPort: random.pick(HOST_PORTS) } : {}),
      ...(mode ? { foreign: mode } : {}),
      ...(mode === 'killed' ? { killMs: random.int(150, 600) } : {}),
    };
    const running = by === 'command' && !foreign && this.#isRunning(entry, slot);
    return [{ ...add, ...(running ? { running } : {}), ...more } as Action];
  }

  /** Weight of a change: what our plugins have made, for the command or for a runtime. */
  #maySet({ by, journalled, damaged, net }: Entry): number {
    const isKnown = by === 'plugins' || (by === 'command' && journalled);
    const isOurs = isKnown && !damaged && !(net === 'a' && this.#isReferences);
    return isOurs && NETS[net].hasPorts && this.#has('set') ? 25 : 0;
  }

  #set(entry: Entry): Action {
    const random = this.#random;
    const ports = ownPorts(entry).filter(port => port !== entry.hostPort);
    const rates = NETS[entry.net].rate === undefined ? [] : RATES;
    const what = rates.length > 0 ? random.pick(['port', 'rate', 'both'] as const) : 'port';
    return {
      ...this.#on(entry, 'set', 'command'),
      ...(what === 'rate' ? {} : { hostPort: random.pick(ports) }),
      ...(what === 'port' ? {} : { rate: random.pick(rates) }),
    };
  }

  /** Whether the container runs there, by an attachment that no action of this round works on. */
  #isRunning({ pod }: Entry, slot: number): boolean {
    if (!this.#has('attach') || !this.#random.chance(0.6)) return false;
    const others = this.#model.list('present').filter(one => one.pod === pod && one.slot === slot);
    return others.some(one => !this.#used.has(keyOf(one)) && this.#model.isInPlace(one));
  }

  #callerOf({ net, state, by, ofEarlierBoot }: Entry): Caller | undefined {
    // Who had begun goes on; another caller may come where nothing is left, or in a new boot.
    if (state !== 'absent' && !ofEarlierBoot) return by;
    const isOnly = net === 'a' && this.#isReferences;
    const weights = {
      command: this.#has('command') && !isOnly ? 35 : 0,
      plugins: this.#has('plugins') && !isOnly ? 40 : 0,
      // Where it finds its lease of an earlier boot it fails, and leaves an interface that no result tells of.
      reference: net === 'a' && this.#has('reference') && !this.#model.swapped && !ofEarlierBoot ? 25 : 0,
    };
    return Object.values(weights).some(weight => weight > 0) ? this.#random.weighted(weights) : undefined;
  }

  #slotFor(entry: Entry, by: Caller | undefined): number | undefined {
    const collides = this.#has('collision') && this.#random.chance(0.08);
    return findSlot(entry, by, {
      ...{ model: this.#model, random: this.#random, collides },
      ...{ slotOf: this.#slotOf, podOf: this.#podOf, used: this.#used },
    });
  }

  #use({ pod }: Entry, slot: number): void {
    this.#slotOf.set(pod, slot);
    this.#usedSlots.add(slot);
    this.#podOf.set(slot, pod);
  }

  #del(entry: Entry): Del {
    const random = this.#random;
    const own: Caller = entry.by === 'command' ? 'command' : 'plugins';
    const isGone = !this.#model.isInPlace(entry);
    // It goes by the name of the interface alone, and that may be another pod's since.
    const mayHarm = isGone && entry.placeUnsure;
    const byReference = entry.by === 'reference' && this.#has('reference') && !mayHarm;
    const by =
      own === 'command'
        ? own
        : random.weighted<Caller>({
            plugins: 60,
            command: this.#has('command') ? 20 : 0,
            reference: byReference ? 30 : 0,
          });
    // A runtime that says there is no namespace has removed the one that the container was in.
    const isSure = isGone && !entry.placeUnsure;
    const noNetns = isSure && (by === 'reference' || (by === 'plugins' && random.chance(0.2)));
    const isKnown = by === 'command' && entry.state === 'present' && entry.by === by;
    const running = isKnown && this.#has('detach') && random.chance(0.4);
    const isStuck =
      entry.net === 'f' && by === 'command' && !running && this.#has('foreign') && random.chance(0.4);
    const forget = isStuck && this.#has('forget') && random.chance(0.7);
    return {
      ...this.#on(entry, 'del', by),
      ...(noNetns ? { noNetns } : {}),
      ...(running ? { running } : {}),
      ...(isStuck ? { foreign: 'stuck' } : {}),
      ...(forget ? { forget } : {}),
    };
  }

  /** A retry that overlaps; or an ADD and a DEL at once. */
  #pairOfAdds(entry: Entry): Action[] | undefined {
    if (!this.#has('pair') || !this.#has('command') || !this.#random.chance(0.06)) return undefined;
    const slot = this.#slotFor(entry, 'command');
    if (slot === undefined) return undefined;
    this.#use(entry, slot);
    const at = this.#at();
    const first = { ...this.#plain({ ...entry, slot }), at };
    const second = { ...first, at: at + this.#random.pick([0, 0, 1, 5, 30]) };
    const isDel = this.#random.chance(0.3);
    return [
      { ...first, kind: 'add' },
      { ...second, kind: isDel ? 'del' : 'add' },
    ];
  }

  #pairOfDels(entry: Entry): Action[] | undefined {
    if (!this.#has('pair') || entry.by !== 'command' || !this.#random.chance(0.05)) return undefined;
    const first = { ...this.#plain(entry), kind: 'del' as const, at: this.#at() };
    return [first, { ...first, at: first.at + this.#random.pick([0, 5, 30]) }];
  }

  #plain({ pod, net, slot }: Entry) {
    return { pod, net, slot, by: 'command' as const };
  }

  #collect(): Action[] {
    if (!this.#has('gc') || !this.#has('command')) return [];
    const random = this.#random;
    const net = this.#net();
    if (net === 'a' && this.#isReferences) return [];
    const list = this.#has('oldgc') && random.chance(0.3) ? 'old' : 'now';
    const kill = this.#has('kill') && random.chance(0.08) ? { killMs: random.int(5, 300) } : {};
    const free = this.#model.valid(net).filter(entry => !this.#used.has(keyOf(entry)));
    const forgotten = list === 'now' ? free.filter(() => random.chance(0.4)) : [];
    for (const entry of forgotten) this.#used.add(keyOf(entry));
    const forget = forgotten.map(({ pod }) => pod);
    return [{ kind: 'gc', net, list, forget, at: this.#at(), ...kill }];
  }

  #upkeep(): Action[] {
    const kind = this.#random.pick(UPKEEP);
    if (!this.#has(kind) || !this.#has('command')) return [];
    const net = this.#net();
    return net === 'a' && this.#isReferences ? [] : [{ kind, net, at: this.#at() }];
  }

  #swap(): Action[] {
    const own = [...this.#model.entries.values()].filter(({ net }) => net === 'a').map(keyOf);
    if (!this.#has('swap') || own.some(key => this.#used.has(key))) return [];
    for (const key of own) this.#used.add(key);
    const { swapped } = this.#model;
    if (swapped) return [{ kind: 'swap', ...swapped, undo: true, at: this.#at() }];
    return [{ kind: 'swap', net: 'a', plugin: 'host-local', at: this.#at() }];
  }

  #daemon(): Action[] {
    if (!this.#has('daemon')) return [];
    const at = this.#at();
    const watch = this.#has('watch') && this.#random.chance(0.5);
    if (this.#model.daemon === 'none')
      return [{ kind: 'daemon', act: 'start', at, ...(watch ? { watch } : {}) }];
    const act = this.#random.weighted({
      ...{ stop: 9, kill: 18 },
      freeze: this.#has('freeze') ? 12 : 0,
      second: this.#has('second') ? 8 : 0,
      upgrade: this.#has('upgrade') ? 10 : 0,
    });
    return [{ kind: 'daemon', act, at }];
  }

  #namespace(): Action[] {
    if (!this.#has('namespace')) return [];
    const slot = this.#random.int(0, SLOTS - 1);
    // A pod that is being made now and then loses its namespace; what the reference then does is its own affair.
    const isUsed = this.#usedSlots.has(slot);
    if (this.#used.has(`slot ${slot}`) || (isUsed && this.#random.chance(0.9))) return [];
    this.#used.add(`slot ${slot}`);
    this.#usedSlots.add(slot);
    const act = this.#model.slot(slot).alive && this.#random.chance(0.25) ? 'remove' : 'remake';
    return [{ kind: 'namespace', act, slot, at: this.#at() }];
  }

  #loss(): Action[] {
    const what = this.#random.pick(['rules', 'future'] as const);
    return this.#has(what) ? [{ kind: 'loss', what, at: this.#at() }] : [];
  }

  #net(): NetLetter {
    return this.#random.weighted({ a: 35, b: 25, f: 15, m: 10, p: 10, t: 5 });
  }
}

/** Those on the network that the reference works on. */
function ofShared(entries: readonly Entry[]): Entry[] {
  return entries.filter(({ net }) => net === 'a');
}
