// Does any address get two holders, or none for ever, in an hour in which everything fails?
//
// Nodes with two networks, one of blocks and one of single addresses, start and end pods, while the API server and its etcd, daemons and
// nodes are killed, frozen, cut off and have wrong clocks, and requests fail, come late, twice, or are done without an answer. Time is simulated.
import { cpSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { giveBackAllOf } from '../../plugins/cluster/tools.ts';
import { API_VERSION, readHeld } from '../../src/pools/held.ts';
import { keyOfClaim, keyOfPod, type Wish } from '../../src/pools/lease.ts';
import { RESTORED_ANNOTATION } from '../../src/pools/restored.ts';
import { Random } from '../storm/random.ts';
import { type ApiModel, apiModel } from './api-model.ts';
import { findContradictions, findLeasedTwice } from './checker.ts';
import { clientOf, type Fate, Killed, type ModelClient } from './faults.ts';
import { makeSimulatorDir, type SimulatedNode, simulatedNode } from './node.ts';
import { type VirtualTime, virtualTime } from './virtual-time.ts';

/** What is played. */
export interface ChurnOptions {
  readonly seconds: number;
  readonly nodes: number;
  readonly seed: number;
}

/** What was seen. */
export interface ChurnReport {
  readonly counts: Readonly<Record<string, number>>;
  /** Times that all holders of all addresses were compared. */
  readonly checks: number;
  readonly problems: readonly string[];
}

const BLOCKS = {
  pool: 'pods',
  spec: { subnets: [{ ipv4: '10.8.0.0/22', ipv6: 'fd08::/118' }], blockSize: 16 },
};
const LAN = {
  pool: 'lan',
  spec: { subnets: [{ ipv4: '10.9.0.0/24' }], blockSize: 1, layout: 'flat' as const },
};
/** A subnet that an operator adds to the blocks by mistake: half of it is there already. */
const DOUBLED = { ipv4: '10.10.0.0/22', ipv6: BLOCKS.spec.subnets[0]?.ipv6 ?? '' };
/** Seconds until the operator has seen what errors say. */
const MISTAKE_S = 120;
/** Seconds; the least that the plugin admits, and its interval. */
const GRACE_S = 1800;
const INTERVAL_S = 600;
/** Until an upkeep that failed is tried again. */
const FIRST_PAUSE_S = 15;
/** Every node has looked at its blocks within this time, with a slow clock and a frozen machine: a backup is older. */
const OLDEST_LOOK_S = 1200;
/** Long enough for the blocks of a node to be freed. */
const OFF_S = GRACE_S + 2 * INTERVAL_S;
const LIMITS = {
  pods: { lowWater: 2, coolDownS: 60, graceS: GRACE_S },
  lan: { lowWater: 0, coolDownS: 0, graceS: GRACE_S },
};
const ORDINALS = 12;
const CLAIMS = 6;
const KEEP_S = 900;
/** Requests that meet a fate of their own. */
const FAULTY = 0.04;
/** Seconds of a machine's clock in one second. */
const RATES = [0.9, 1, 1.1];

/** A pod, as its runtime knows it. */
interface Pod {
  readonly id: string;
  readonly network: 'pods' | 'lan';
  /** Name of a StatefulSet's pod or of a claim, if it has one. */
  readonly holder?: string;
}

/** A machine. Its processes end with it, its disk remains. */
class Machine {
  readonly pods = new Map<string, Pod>();
  /** Counts boots: what an earlier one began does not go on. */
  boot = 0;
  bootedAt = 0;
  state: 'up' | 'down' | 'gone' = 'up';
  frozenUntil = 0;
  cutOffUntil = 0;
  /** Seconds of its clock in one second. */
  rate = 1;
  /** Changes when it is renamed; its identity does not, and its disk may be restored. */
  name: string;
  readonly identity: string;
  constructor(name: string) {
    this.name = name;
    this.identity = `machine-${name}`;
  }
}

/** Plays it. */
export async function churn({ seconds, nodes, seed }: ChurnOptions): Promise<ChurnReport> {
  const dir = makeSimulatorDir('cat-churn-');
  try {
    return await new Churn(dir, nodes, seed).play(seconds);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

class Churn {
  readonly #time: VirtualTime = virtualTime();
  readonly #model: ApiModel = apiModel();
  readonly #draws: Random;
  readonly #dir: string;
  readonly #machines: Machine[] = [];
  readonly #counts: Record<string, number> = {};
  readonly #problems: string[] = [];
  readonly #clients: ModelClient[] = [];
  readonly #allocators = new Map<
    Machine,
    { readonly boot: number; readonly nodes: readonly [SimulatedNode, SimulatedNode] }
  >();
  /** Where the last pod of a holder runs or ended; absent if its runtime has called DEL. */
  readonly #holders = new Map<string, Machine>();
  /** Where the pod runs to which the machine of a claim moves. */
  readonly #targets = new Map<string, Machine>();
  readonly #lastAddress = new Map<string, string>();
  #serverDownUntil = 0;
  #isCalm = false;
  /** Of the blocks, as the operator wrote them last. */
  readonly #subnets: { readonly ipv4: string; readonly ipv6: string }[] = [...BLOCKS.spec.subnets];
  /** What was lost, until a node has noticed: a machine that knows nothing of the store cannot. */
  #unnoticed: 'restored' | 'deleted' | undefined;
  #backups: { readonly at: number; readonly restore: () => void }[] = [];
  #checks = 0;
  #ids = 0;

  constructor(dir: string, count: number, seed: number) {
    this.#dir = dir;
    this.#draws = new Random(seed);
    for (let i = 0; i < count; i++) this.#join(`n${i}`);
    for (let i = 0; i < CLAIMS; i++) this.#makeClaim(i);
  }

  async play(seconds: number): Promise<ChurnReport> {
    const { after, runUntil, now } = this.#time;
    const repeat = (mean: number, work: () => void): void => {
      const again = (): void => {
        if (this.#isCalm) return;
        work();
        after(mean * 2 * this.#draws.next(), again);
      };
      after(mean * this.#draws.next(), again);
    };
    repeat(0.12, () => this.#actOnPods());
    repeat(60, () => this.#actOnMachines());
    repeat(300, () => this.#stopServer());
    repeat(450, () => {
      this.#backups.push({ at: now(), restore: this.#model.backup() });
    });
    repeat(1800, () => this.#loseObjects());
    repeat(1200, () => this.#mistakeSubnets());
    repeat(10, () => this.#check());
    await runUntil(seconds);
    this.#isCalm = true;
    for (const machine of this.#machines) {
      machine.frozenUntil = 0;
      machine.cutOffUntil = 0;
      if (machine.state === 'down') this.#start(machine);
    }
    this.#serverDownUntil = 0;
    for (const client of this.#clients) client.drain();
    // What is kept ends, and what vanished nodes held is collected, by clocks that may be slow.
    await runUntil(now() + 1.5 * (2 * GRACE_S + KEEP_S + 12 * INTERVAL_S));
    for (const machine of this.#up()) {
      for (const node of this.#nodesOf(machine)) void this.#tendNow(node, 0);
      void this.#mustAdd(machine);
    }
    await runUntil(now() + 120);
    this.#check();
    const all = this.#up().flatMap(machine => this.#nodesOf(machine));
    for (const network of ['pods', 'lan'] as const) {
      const own = all.filter(node => node.claimant.network === network);
      const objects = new Map(
        [...this.#model.objects].filter(
          ([, { spec }]) => (spec as { network?: string })?.network === network,
        ),
      );
      this.#problems.push(...findContradictions({ objects }, own));
    }
    this.#counts.requests = this.#model.counts.requests;
    this.#counts.conflicts = this.#model.counts.conflicts;
    return { counts: this.#counts, checks: this.#checks, problems: this.#problems };
  }

  #count(what: string): void {
    this.#counts[what] = (this.#counts[what] ?? 0) + 1;
  }

  #up(): Machine[] {
    return this.#machines.filter(({ state }) => state === 'up');
  }

  /** @param original whose disk it has a copy of */
  #join(name: string, original?: Machine): Machine {
    const machine = new Machine(name);
    this.#machines.push(machine);
    if (original)
      this.#eachDisk(original, (dir, network) =>
        cpSync(dir, join(this.#dir, `${machine.identity}-${network}`), { recursive: true }),
      );
    this.#start(machine);
    return machine;
  }

  /** Whatever has happened to a machine, pods start on it without a person's help. */
  async #mustAdd(machine: Machine): Promise<void> {
    const [node] = this.#nodesOf(machine);
    try {
      await node.add(`last-${machine.identity}`);
      node.del(`last-${machine.identity}`);
    } catch (thrown) {
      const { message } = thrown as Error;
      if (!message.includes('no IP addresses available'))
        this.#problems.push(`no pod starts on ${machine.name} at the end: ${message}`);
    }
  }

  #mistakeSubnets(): void {
    if (this.#subnets.length > 1 || this.#isCalm) return;
    this.#count('pools: a subnet twice');
    this.#subnets.push(DOUBLED);
    this.#time.after(MISTAKE_S, () => this.#subnets.pop());
  }

  #makeClaim(i: number): void {
    const name = `vm-${i}`;
    this.#model.put(`apis/k8s.cni.cncf.io/v1alpha1/namespaces/ns/ipamclaims/${name}`, {
      metadata: { name, uid: name },
    });
  }

  /** The machine boots: its daemon calls for GC, then looks after the blocks from time to time. */
  #start(machine: Machine): void {
    // Kubelet makes it, if it is missing.
    this.#model.put(`api/v1/nodes/${machine.name}`, { metadata: { name: machine.name } });
    machine.boot++;
    machine.bootedAt = this.#time.now();
    machine.state = 'up';
    machine.rate = this.#draws.pick(RATES);
    const { boot } = machine;
    for (const node of this.#nodesOf(machine)) {
      node.collectGarbage(new Set());
      let failures = 0;
      const upkeep = (): void => {
        if (machine.boot !== boot || machine.state !== 'up') return;
        const wait = machine.frozenUntil - this.#time.now();
        // As src/daemon/upkeep.ts: soon after a failure, and later after each further one.
        const next = (succeeded: boolean): void => {
          failures = succeeded ? 0 : failures + 1;
          const againS = succeeded
            ? INTERVAL_S * (0.75 + this.#draws.next() / 2)
            : Math.min(FIRST_PAUSE_S * 2 ** (failures - 1), INTERVAL_S);
          this.#time.after(againS / machine.rate, upkeep);
        };
        if (wait > 0) this.#time.after(wait + 0.001, upkeep);
        else void this.#tendNow(node).then(next);
      };
      this.#time.after(this.#draws.next() * 30, upkeep);
    }
    for (const [id, pod] of machine.pods) {
      machine.pods.delete(id);
      this.#ended(machine, pod);
    }
  }

  /** @returns whether it succeeded */
  async #tendNow(node: SimulatedNode, searchEveryS?: number): Promise<boolean> {
    const limits = LIMITS[node.claimant.network as keyof typeof LIMITS];
    return node.tend(limits, searchEveryS).then(
      ({ lost, returned, collected }) => {
        this.#count('upkeeps');
        for (const _ of returned) this.#count('blocks and addresses given back');
        for (const _ of collected) this.#count('of vanished nodes, collected');
        // A lease that is lost would be one whose address another node may have.
        for (const name of lost)
          this.#problems.push(
            `${this.#time.now().toFixed(1)} s: ${node.name} lost ${name}, which its pods use`,
          );
        return true;
      },
      () => {
        this.#count('upkeeps that failed');
        return false;
      },
    );
  }

  /** The allocators of this boot of a machine. */
  #nodesOf(machine: Machine): readonly [SimulatedNode, SimulatedNode] {
    const { boot } = machine;
    const known = this.#allocators.get(machine);
    if (known?.boot === boot) return known.nodes;
    const nodes = this.#makeNodes(machine);
    this.#allocators.set(machine, { boot, nodes });
    return nodes;
  }

  #makeNodes(machine: Machine): [SimulatedNode, SimulatedNode] {
    const { boot } = machine;
    const fate = (): Fate => {
      if (machine.boot !== boot || machine.state !== 'up') return 'dies';
      if (this.#isCalm) return 'arrives';
      const now = this.#time.now();
      if (machine.cutOffUntil > now) return this.#draws.pick(['fails', 'lost'] as const);
      if (this.#serverDownUntil > now) return 'fails';
      if (this.#draws.next() >= FAULTY) return 'arrives';
      const chosen = this.#draws.pick(['fails', 'lost', 'twice', 'late', 'dies', 'dies after'] as const);
      this.#count(`requests: ${chosen}`);
      return chosen;
    };
    const pause = async (ms: number): Promise<void> => {
      await this.#time.sleep(ms / 1000);
      // A machine that is frozen goes on where it was, long after its requests have been given up.
      while (machine.frozenUntil > this.#time.now())
        await this.#time.sleep(machine.frozenUntil - this.#time.now() + 0.001);
      if (machine.boot !== boot || machine.state !== 'up') throw new Killed(machine.name);
    };
    const latencyMs = () => 1 + 20 * this.#draws.next() ** 4;
    const make = ({ pool, spec }: typeof BLOCKS | typeof LAN, network: string): SimulatedNode => {
      const api = clientOf(this.#model, { fate, latencyMs, pause });
      this.#clients.push(api);
      return simulatedNode({
        ...{
          name: machine.name,
          machine: machine.identity,
          disk: machine.identity,
          dir: this.#dir,
          api,
          pool,
          spec,
          network,
          pause,
          boot: `boot-${machine.identity}-${boot}`,
        },
        random: () => this.#draws.next(),
        clock: () => (this.#time.now() - machine.bootedAt) * machine.rate,
        deadlineMs: 600_000,
      });
    };
    const blocks = { ...BLOCKS, spec: { ...BLOCKS.spec, subnets: this.#subnets } };
    return [make(blocks, 'pods'), make(LAN, 'lan')];
  }

  #nodeFor(machine: Machine, network: Pod['network']): SimulatedNode {
    const [pods, lan] = this.#nodesOf(machine);
    return network === 'pods' ? pods : lan;
  }

  #actOnPods(): void {
    const running = this.#up().filter(({ frozenUntil }) => frozenUntil <= this.#time.now());
    if (running.length === 0) return;
    const machine = this.#draws.pick(running);
    const dice = this.#draws.next();
    if (dice < 0.5 && machine.pods.size < 50) void this.#startPod(machine);
    else void this.#endPod(machine);
  }

  async #startPod(machine: Machine): Promise<void> {
    const dice = this.#draws.next();
    const network = dice < 0.6 ? 'pods' : 'lan';
    const holder =
      dice < 0.7
        ? undefined
        : dice < 0.85
          ? `web-${this.#draws.int(0, ORDINALS - 1)}`
          : `vm-${this.#draws.int(0, CLAIMS - 1)}`;
    const from = holder && this.#holders.get(holder);
    const moves = from !== undefined && from !== machine && holder?.startsWith('vm') === true;
    // There is one pod of a name at a time; the next one is made when the runtime of the former has ended it. Machines move.
    if (holder && from && (!moves || this.#targets.has(holder))) return;
    const id = `c${++this.#ids}`;
    const pod: Pod = { id, network, ...(holder ? { holder } : {}) };
    if (holder) (moves ? this.#targets : this.#holders).set(holder, machine);
    machine.pods.set(id, pod);
    const { boot } = machine;
    const begun = this.#time.now();
    try {
      const addresses = await this.#nodeFor(machine, network).add(
        id,
        'eth0',
        holder ? { ...wishOf(holder), joins: moves } : undefined,
      );
      if (machine.boot !== boot) return;
      this.#count(moves ? 'ADD of a machine that moves' : 'ADD');
      this.#judge(holder, addresses.join(' '));
    } catch (thrown) {
      this.#count(thrown instanceof Killed ? 'ADD, killed' : 'ADD, failed');
      if (machine.boot !== boot || machine.state !== 'up') return;
      // The runtime calls DEL after an ADD that failed.
      await this.#end(machine, pod);
    } finally {
      this.#counts['longest ADD, ms'] = Math.max(
        this.#counts['longest ADD, ms'] ?? 0,
        Math.round((this.#time.now() - begun) * 1000),
      );
    }
  }

  #judge(holder: string | undefined, address: string): void {
    if (holder === undefined) return;
    const before = this.#lastAddress.get(holder);
    this.#lastAddress.set(holder, address);
    if (before === undefined) return;
    this.#count(
      `${holder.split('-')[0]}: ${before === address ? 'the same address again' : 'another address'}`,
    );
    if (holder.startsWith('vm') && before !== address)
      this.#problems.push(`claim ${holder} had ${before}, and now has ${address}`);
  }

  async #endPod(machine: Machine): Promise<void> {
    const pods = [...machine.pods.values()];
    if (pods.length === 0) return;
    await this.#end(machine, this.#draws.pick(pods));
  }

  async #end(machine: Machine, pod: Pod): Promise<void> {
    if (!machine.pods.delete(pod.id)) return;
    const { boot } = machine;
    const node = this.#nodeFor(machine, pod.network);
    if (pod.network === 'pods') node.del(pod.id);
    else await node.delAtOnce(pod.id).catch(() => this.#count('DEL that could not tell the store'));
    this.#count('DEL');
    if (machine.boot === boot) this.#ended(machine, pod);
  }

  /** Where a machine moved to, it is now; without a target, it is gone. */
  #ended(machine: Machine, { holder }: Pod): void {
    if (holder === undefined) return;
    const target = this.#targets.get(holder);
    if (target) this.#targets.delete(holder);
    if (target === machine) return;
    if (target) this.#holders.set(holder, target);
    else this.#holders.delete(holder);
  }

  #actOnMachines(): void {
    const { now, after } = this.#time;
    const up = this.#up();
    const machine = this.#draws.pick(this.#machines.filter(({ state }) => state !== 'gone'));
    const spell = 20 + 280 * this.#draws.next();
    const what = this.#draws.weighted({
      kill: 3,
      freeze: 3,
      'cut off': 3,
      hide: 1,
      remove: 1,
      off: 1,
      clone: 1,
      rename: 1,
      reinstall: 1,
      snapshot: 1,
      clock: 1,
      'power failure': 1,
      leave: 1,
    });
    if (machine.state !== 'up' || up.length < 4) return;
    this.#count(`machines: ${what}`);
    if (what === 'freeze') machine.frozenUntil = now() + spell;
    if (what === 'cut off') machine.cutOffUntil = now() + spell;
    if (what === 'clock') machine.rate = this.#draws.pick(RATES);
    if (what === 'kill') {
      machine.state = 'down';
      after(spell, () => machine.state === 'down' && this.#start(machine));
    }
    if (what === 'power failure') {
      machine.state = 'down';
      // What was renamed without being written out may be empty.
      const empty = (): void =>
        this.#eachDisk(machine, dir => writeFileSync(join(dir, '.catena-blocks'), ''));
      this.#startIgnorant(machine, spell, empty);
    }
    if (what === 'leave') void this.#leave(machine);
    if (what === 'hide') {
      // Its Node object is missing, though it is there.
      this.#model.remove(`api/v1/nodes/${machine.name}`);
      after(spell, () => {
        if (machine.state !== 'gone')
          this.#model.put(`api/v1/nodes/${machine.name}`, { metadata: { name: machine.name } });
      });
    }
    // The copy knows a store that was restored by its number, not one in which all was made again.
    if (what === 'clone' && this.#machines.length < 40 && !this.#isUnnoticed('deleted')) {
      const copy = this.#join(`n${this.#machines.length}`, machine);
      // One more would make the pool too small for all.
      after(OFF_S, () => copy.state === 'up' && this.#remove(copy));
    }
    if (what === 'rename') {
      machine.state = 'down';
      after(spell, () => {
        if (machine.state !== 'down') return;
        this.#model.remove(`api/v1/nodes/${machine.name}`);
        machine.name += 'x';
        this.#start(machine);
      });
    }
    if (what === 'reinstall') {
      machine.state = 'down';
      this.#startIgnorant(machine, spell, () =>
        this.#eachDisk(machine, dir => rmSync(dir, { recursive: true, force: true })),
      );
    }
    if (what === 'snapshot') {
      const copies = `${machine.identity}-snapshot`;
      this.#eachDisk(machine, (dir, network) =>
        cpSync(dir, join(this.#dir, `${copies}-${network}`), { recursive: true }),
      );
      after(4 * spell, () => {
        if (machine.state !== 'up') return;
        machine.state = 'down';
        this.#startIgnorant(machine, 20, () =>
          this.#eachDisk(machine, (dir, network) => {
            rmSync(dir, { recursive: true, force: true });
            cpSync(join(this.#dir, `${copies}-${network}`), dir, { recursive: true });
          }),
        );
      });
    }
    if (what === 'off') {
      // Its Node object is deleted, and it is back when its blocks are others'.
      machine.state = 'down';
      this.#model.remove(`api/v1/nodes/${machine.name}`);
      this.#startIgnorant(machine, OFF_S + spell);
    }
    if (what === 'remove' && !this.#isUnnoticed()) {
      this.#remove(machine);
      this.#join(`n${this.#machines.length}`);
    }
  }

  /** Boots a machine that knows nothing of the last minutes: not before others have noticed that the store lost something. */
  #startIgnorant(machine: Machine, inSeconds: number, prepare?: () => void): void {
    this.#time.after(inSeconds, () => {
      if (machine.state !== 'down') return;
      if (this.#isUnnoticed()) {
        this.#startIgnorant(machine, 10, prepare);
        return;
      }
      prepare?.();
      this.#start(machine);
    });
  }

  /** Catena is uninstalled with all that it has on the machine, whose Node object stays, and is installed again later. */
  async #leave(machine: Machine): Promise<void> {
    const { boot } = machine;
    const isThere = () => machine.boot === boot && machine.state === 'up';
    for (const pod of [...machine.pods.values()]) await this.#end(machine, pod);
    for (const { claimant, blocks } of this.#nodesOf(machine)) {
      // A claim may still be on its way, and is found by the one that installs it again.
      const before = new Set(blocks().flatMap(({ name, state }) => (state === 'held' ? name : [])));
      // What was kept by this node ends with it.
      for (const [holder, address] of this.#lastAddress)
        if (blocks().some(({ name }) => name === `${LAN.pool}-${address}`)) this.#lastAddress.delete(holder);
      const left = await giveBackAllOf(claimant, 600_000).catch(() => undefined);
      if (left === undefined || left.length || !isThere()) return;
      this.#count('blocks and addresses of a node that left: given back');
      for (const [path, { metadata, spec }] of this.#model.objects)
        if (before.has(metadata.name) && (spec as { node?: string })?.node === machine.name)
          this.#problems.push(
            `${this.#time.now().toFixed(1)} s: ${machine.name} left, and ${path} is still its own`,
          );
    }
    machine.state = 'down';
    this.#eachDisk(machine, dir => rmSync(dir, { recursive: true, force: true }));
    this.#startIgnorant(machine, 60);
  }

  #remove(machine: Machine): void {
    machine.state = 'gone';
    this.#model.remove(`api/v1/nodes/${machine.name}`);
    for (const pod of machine.pods.values()) this.#ended(machine, pod);
    machine.pods.clear();
  }

  #eachDisk({ identity }: Machine, work: (dir: string, network: string) => void): void {
    for (const network of ['pods', 'lan']) {
      const dir = join(this.#dir, `${identity}-${network}`);
      if (existsSync(dir)) work(dir, network);
    }
  }

  /** All objects are deleted with their kinds, which are applied again; or etcd is restored from a backup. */
  #loseObjects(): void {
    // A machine that has just joined, and knows no pool, cannot notice: the plugin's README lets none join then.
    const knows = ({ claimant }: SimulatedNode) => readHeld(claimant.dir)?.known !== undefined;
    if (!this.#up().every(machine => this.#nodesOf(machine).every(knows))) return;
    const restore = this.#backups.findLast(({ at }) => this.#time.now() - at > OLDEST_LOOK_S)?.restore;
    const isRestored = restore !== undefined && this.#draws.next() < 0.5;
    this.#count(isRestored ? 'etcd restored' : 'kinds of objects deleted and applied again');
    if (isRestored) restore();
    else
      for (const path of [...this.#model.objects.keys()])
        if (path.startsWith('apis/catena.')) this.#model.remove(path);
    if (isRestored) this.#backups = [];
    this.#unnoticed = isRestored ? 'restored' : 'deleted';
    // What is kept while no pod has it, only its object knows.
    this.#lastAddress.clear();
  }

  /** Whether all that was lost, or this of it, has been noticed by none: then the plugin's README lets no new machine join. */
  #isUnnoticed(what?: 'deleted'): boolean {
    const isMarked = [BLOCKS, LAN].every(({ pool }) => {
      const { annotations } = (this.#model.objects.get(`apis/${API_VERSION}/pools/${pool}`)?.metadata ??
        {}) as { annotations?: Record<string, string> };
      return annotations?.[RESTORED_ANNOTATION] !== undefined;
    });
    if (isMarked) this.#unnoticed = undefined;
    return what ? this.#unnoticed === what : this.#unnoticed !== undefined;
  }

  #stopServer(): void {
    this.#count('API server and etcd killed');
    this.#serverDownUntil = this.#time.now() + 5 + 40 * this.#draws.next();
  }

  /** Whether two machines that are there have leased one address. A machine that is down has no pods. */
  #check(): void {
    this.#checks++;
    for (const network of ['pods', 'lan'] as const)
      for (const problem of findLeasedTwice(this.#up().map(machine => this.#nodeFor(machine, network))))
        this.#problems.push(`${this.#time.now().toFixed(1)} s: ${problem}`);
  }
}

function wishOf(holder: string): Wish {
  if (holder.startsWith('vm')) {
    const keptFor = keyOfClaim({ namespace: 'ns', name: holder, uid: holder });
    return { keptFor, keepS: undefined, addresses: [], isPromise: true };
  }
  const keptFor = keyOfPod('lan', 'ns', holder, 'eth0');
  return { keptFor, keepS: KEEP_S, addresses: [], isPromise: false };
}
