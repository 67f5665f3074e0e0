// How long does a daemon take to notice and to repair each way of damage, and does what was sound stay untouched?
import { expect } from 'bun:test';
import fs from 'node:fs';
import type { Running, WholeNode } from './damaged-nodes.ts';
import type { Damage, DamagedNames } from './damages.ts';
import { differences } from './dump-differences.ts';
import type { Machine } from './machine.ts';
import type { Dump, Namespace, Outside, Row } from './netns.ts';
import { findUnreachable, PUBLISHED } from './published.ts';
import { startServer } from './traffic.ts';
import { startTransfer, type Transferred } from './transfer.ts';
import { until } from './until.ts';
import { type Probe, startProbe } from './watched-host.ts';

/** What must come of a damage. */
export type Outcome =
  | 'repaired'
  /** The daemon says in its log that it cannot repair this, and how an operator can. */
  | 'given up, without traffic'
  /** Nothing of an attachment is damaged, and traffic goes on. */
  | 'unharmed'
  /** Not an attachment's: the doctor's finding of this name says what to do. */
  | `doctor: ${string}`;

/** What makes the container of a node. */
export type MadeBy = 'our own runner' | 'podman' | 'containerd';

/** A way of damage, and what the doctor must find and print. */
export interface DamageRow {
  readonly way: string;
  readonly damage: Damage;
  /** Ids of findings; by default what follows from the outcome, or `attachments`. */
  readonly finds?: readonly string[];
  /** What one of the findings says. */
  readonly tells?: RegExp;
  /** What may be found as well: it depends on what the container is connected to. */
  readonly mayFind?: readonly string[];
  /** What differs by the program that made the container. */
  readonly findsFor?: Partial<Readonly<Record<MadeBy, readonly string[]>>>;
  /** By default the printed commands mend it. `undo`: only who did it can, so advice is printed. */
  readonly mend?: 'undo';
}

/** A way of damage, and what must come of it under a daemon that repairs. */
export interface Scene extends DamageRow {
  readonly outcome: Outcome;
}

/** A node with a daemon, a container with port 8080 → 80, and a neighbour on a bridge of its own. */
export interface DamagedNode {
  readonly machine: Machine;
  readonly outside: Outside;
  readonly container: Namespace;
  readonly names: DamagedNames;
  readonly probe: Probe;
  readonly neighbour: Namespace;
  transferred(): Promise<Transferred>;
}

/** What happened, in milliseconds after the damage. */
export interface Told {
  readonly way: string;
  readonly outcome: string;
  readonly noticed?: number;
  readonly repaired?: number;
  /** Undefined if the traffic was never interrupted. */
  readonly traffic?: number;
  /** Segments of the neighbour's transfer that were sent again. */
  readonly lost: number;
  /** Of the host's and the container's kernel, what differs from before. */
  readonly changed: readonly string[];
}

/** Time for the timer to come to every attachment, on a busy machine. */
const NOTICED_WITHIN_MS = 20_000;
/** For what must not be noticed: a few rounds of the timer. */
const UNNOTICED_FOR_MS = 700;
/** Damage that follows a repair sooner counts as a repair that did not last. */
const CALM_MS = 1_100;
const LONGEST_GAP_MS = 1_000;
/** Fewer than the transfer sends in 20 ms: the word that one came twice may still be on its way when they are counted. */
const MOST_LOST = 5;

const SETTINGS = { watch: 'repair', watchSeconds: 0.4, leftoverSeconds: 0.5 };

/** Starts the daemon of a machine, with repairs. */
export async function startRepairing(machine: Machine): Promise<Bun.Subprocess> {
  machine.write('/etc/catena.json', JSON.stringify(SETTINGS));
  const argv = [
    '/opt/cni/bin/catena',
    'daemon',
    '--config',
    '/etc/catena.json',
    '--log',
    'file:/run/catena.log',
  ];
  const daemon = machine.start(argv, `${machine.lab.tmp}/daemon.log`);
  await until(async () => (await watchOf(machine).catch(() => undefined))?.lastCheck !== undefined);
  return daemon;
}

/** The watch, as the daemon reports it. */
export async function watchOf(machine: Machine): Promise<Row> {
  const unix = machine.path('/run/catena/catena.sock');
  const state = await fetch('http://catena/v1/state', { unix, signal: AbortSignal.timeout(10_000) });
  return ((await state.json()) as { watch: Row }).watch;
}

/** A node for the table: the daemon runs, a server listens in the container, and the neighbour's transfer has begun. */
export async function prepareNode(whole: WholeNode): Promise<DamagedNode> {
  const { machine, outside, web, peer } = whole;
  const { lab } = machine;
  await startServer(lab, web.netns, { protocol: 'tcp', port: 80 });
  return {
    machine,
    outside,
    container: web.netns,
    names: await namesOf(whole, web),
    probe: await startProbe(lab, outside, outside.hostAddress.v4, 8080),
    neighbour: peer.netns,
    transferred: await startTransfer(lab, { from: lab.host, to: peer.netns, address: peer.address }),
  };
}

/** What the lines of a damage name; a container that was made again has another device. */
export async function namesOf({ machine: { lab }, file }: WholeNode, web: Running): Promise<DamagedNames> {
  const peer = (await lab.ip(web.netns, 'link', 'show', 'eth0'))[0]?.link_index;
  const port = (await lab.ip(lab.host, 'link')).find(({ ifindex }) => ifindex === peer)?.ifname;
  const list = { bridge: 'shop0', gateway: '10.66.0.1/24', subnet: '10.66.0.0/24', file };
  return { ...list, port, id: web.id };
}

/** Damages the node in each way, and expects the outcome of each, the kernel's state as before, and a neighbour that noticed nothing. */
export async function expectOutcomes(node: DamagedNode, scenes: readonly Scene[]): Promise<void> {
  const { machine, neighbour, container, outside } = node;
  const before = await machine.lab.dump(neighbour);
  const told = await damageOneByOne(node, scenes);
  const transfer = await node.transferred();
  process.stdout.write(`transfer of the neighbour: ${JSON.stringify(transfer)}\n`);
  expect(told.map(({ way, outcome }) => [way, outcome])).toEqual(
    scenes.map(({ way, outcome }) => [way, outcome]),
  );
  expect(told.filter(({ changed }) => changed.length > 0)).toEqual([]);
  expect(transfer.isOpen).toBe(true);
  expect(transfer.longestGapMs).toBeLessThan(LONGEST_GAP_MS);
  expect(told.filter(({ lost }) => lost > MOST_LOST)).toEqual([]);
  expect(await machine.lab.dump(neighbour)).toEqual(before);
  // The server of the TCP port is still there.
  const ports = PUBLISHED.filter(({ protocol }) => protocol === 'udp');
  expect(await findUnreachable(machine.lab, { container, outside, ports })).toEqual([]);
}

/** Damages the node in each way, one after the other. @returns what happened, in the order of the scenes */
export async function damageOneByOne(node: DamagedNode, scenes: readonly Scene[]): Promise<Told[]> {
  const told: Told[] = [];
  for (const scene of scenes) {
    const row = await play(node, scene);
    told.push(row);
    const { longestGapMs } = await node.transferred();
    process.stdout.write(
      `${line(row)}; neighbour: ${row.lost} segments lost, longest gap so far ${longestGapMs} ms\n`,
    );
  }
  return told;
}

async function play(node: DamagedNode, { way, damage, outcome }: Scene): Promise<Told> {
  const { machine, names, probe } = node;
  // What was given up in the scene before has to be found sound again.
  await until(async () => {
    const { drifted, givenUp } = await watchOf(machine);
    return probe.latest().isUp && drifted.length + givenUp.length === 0;
  }).catch(() => {
    throw new Error(`Cannot begin "${way}": what came before is not put right`);
  });
  const [dump, before, sent] = [await dumpOf(node), await watchOf(machine), await node.transferred()];
  // The programs that lead there take a while to start.
  const startedAt = Number(await type(node, `date +%s%3N; ${damage.line(names)}`, damage.inside));
  const since = () => Date.now() - startedAt;
  const mayBeNoticed = outcome === 'repaired' || outcome === 'given up, without traffic';
  const withinMs = mayBeNoticed ? NOTICED_WITHIN_MS : UNNOTICED_FOR_MS;
  let [noticed, repaired]: (number | undefined)[] = [];
  let seen: Row = before;
  await until(
    async () => {
      seen = await watchOf(machine);
      if (countOf(seen.checks, 'drifted') > countOf(before.checks, 'drifted')) noticed ??= since();
      if (countOf(seen.repairs, 'repaired') > countOf(before.repairs, 'repaired')) repaired ??= since();
      return seen.givenUp.length > 0 || (repaired !== undefined && seen.drifted.length === 0);
    },
    { withinMs, everyMs: 10 },
  ).catch(() => undefined);
  const isGivenUp = seen.givenUp.length > 0;
  const found = await outcomeOf(node, { isRepaired: repaired !== undefined, isGivenUp, noticed }, damage);
  await Bun.sleep(Math.max(0, CALM_MS - (since() - (repaired ?? 0))));
  // A probe takes a moment to notice, and counts an answer that a busy machine delays as none.
  await until(() => probe.latest().isUp || isGivenUp, { withinMs: 5_000 }).catch(() => undefined);
  const { isUp, at } = probe.latest();
  const outage = at > startedAt && isUp ? at - startedAt : undefined;
  return {
    way,
    outcome: isUp ? found : `${found}, without traffic`,
    ...(noticed === undefined ? {} : { noticed }),
    ...(repaired === undefined ? {} : { repaired }),
    ...(outage === undefined ? {} : { traffic: outage }),
    lost: (await node.transferred()).lost - sent.lost,
    changed: isGivenUp ? [] : await lastingChange(node, dump),
  };
}

/** What came of it; what the daemon leaves is undone. */
async function outcomeOf(
  node: DamagedNode,
  seen: { readonly isRepaired: boolean; readonly isGivenUp: boolean; readonly noticed: number | undefined },
  { undo, inside }: Damage,
): Promise<string> {
  const { machine, names } = node;
  if (seen.isGivenUp) {
    const log = fs.readFileSync(machine.path('/run/catena.log'), 'utf8');
    const isTold = log.split('\n').some(one => one.includes('cannot be repaired') && one.includes('advice'));
    if (undo) await type(node, undo(names), inside);
    return isTold ? 'given up' : 'silent';
  }
  if (seen.isRepaired) return 'repaired';
  const ids = seen.noticed === undefined ? await diagnose(machine) : ['noticed, not repaired'];
  if (undo) await type(node, undo(names), inside);
  if (ids.length > 0) return `doctor: ${ids.join(', ')}`;
  return 'unharmed';
}

/** What the doctor finds wrong; this machine's own files are not the table's business. */
export async function diagnose(machine: Machine): Promise<string[]> {
  const { stdout } = await machine.run(['/opt/cni/bin/catena', 'doctor', '--json']);
  const { findings } = JSON.parse(stdout) as { findings: { id: string; severity: string }[] };
  const wrong = findings.filter(({ severity }) => ['error', 'warning', 'unexamined'].includes(severity));
  return [...new Set(wrong.map(({ id }) => id))].filter(id => !id.startsWith('executables'));
}

/** What differs in the kernel once every attachment has had its turn: a busy machine repairs the last one later. */
async function lastingChange(node: DamagedNode, before: Record<string, Dump>): Promise<string[]> {
  let changed = await changedSince(node, before);
  if (changed.length === 0) return changed;
  await until(
    async () => {
      changed = await changedSince(node, before);
      return changed.length === 0;
    },
    { withinMs: 10_000, everyMs: 100 },
  ).catch(() => undefined);
  await Bun.sleep(CALM_MS);
  return changed;
}

/** What differs in the kernel from an earlier time. */
export async function changedSince(node: DamagedNode, before: Record<string, Dump>): Promise<string[]> {
  return differences(before, await dumpOf(node));
}

async function type(node: DamagedNode, text: string, inside?: 'container'): Promise<string> {
  const argv = ['sh', '-c', text];
  const { exitCode, stdout, stderr } = await (inside === undefined
    ? node.machine.run(argv)
    : node.machine.lab.run(node.container, argv));
  if (exitCode !== 0) throw new Error(`Cannot type "${text}": ${stderr}`);
  return stdout.split('\n')[0] ?? '';
}

export async function dumpOf({ machine, container }: DamagedNode): Promise<Record<string, Dump>> {
  const [host, inside] = await Promise.all([machine.lab.dump(machine.lab.host), machine.lab.dump(container)]);
  return { host, container: inside };
}

export function countOf(counts: Record<string, number> | undefined, what: string): number {
  return counts?.[what] ?? 0;
}

/** A row of the table. */
export function line({ way, outcome, noticed, repaired, traffic, changed }: Told): string {
  const ms = (at: number | undefined, otherwise: string) =>
    (at === undefined ? otherwise : `${at} ms`).padStart(9);
  const times = `noticed ${ms(noticed, '-')}  repaired ${ms(repaired, '-')}  traffic ${ms(traffic, 'unbroken')}`;
  return [`${way.padEnd(48)} ${times}  ${outcome}`, ...changed.map(one => `    ${one}`)].join('\n');
}
