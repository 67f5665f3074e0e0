// What does a daemon that repairs do about what is no damage of an attachment: a full pool, lost namespaces, its own death?
import { expect } from 'bun:test';
import fs from 'node:fs';
import { NODE_WAYS } from './damage-scenes.ts';
import {
  changedSince,
  countOf,
  type DamagedNode,
  diagnose,
  dumpOf,
  line,
  startRepairing,
  type Told,
  watchOf,
} from './damage-table.ts';
import type { Machine } from './machine.ts';
import type { Row } from './netns.ts';
import { until } from './until.ts';

/** How the runtime of a node makes one more container, and loses and deletes it. */
export interface Maker {
  make(name: string): Promise<{ readonly id: string }>;
  /** Ends its processes in such a way that the runtime runs no DEL. */
  crash(name: string): Promise<void>;
  remove(name: string): Promise<void>;
}

const TIGHT = 'tight';
const RESULTS = '/var/lib/cni/results';
/** A daemon is killed this long after the rules were flushed, and each further time this much later. */
const FIRST_KILL_MS = 40;
const KILL_STEP_MS = 20;
const KILLS = 10;

/** A list with addresses for so many containers. */
export function tightList(containers: number): Row {
  const ends = { rangeStart: '10.99.0.2', rangeEnd: `10.99.0.${1 + containers}` };
  const ipam = { type: 'host-local', subnet: '10.99.0.0/24', ...ends };
  const bridge = { type: 'bridge', bridge: 'tight0', isGateway: true, ipam };
  return { cniVersion: '1.0.0', name: TIGHT, plugins: [bridge, { type: 'firewall' }] };
}

/** Plays {@link NODE_WAYS} on a node whose list {@link tightList} has room for one container more, and expects the outcome of each. */
export async function expectWays(node: DamagedNode, maker: Maker): Promise<void> {
  const { machine } = node;
  const flush = () => machine.ok(['nft', 'flush', 'ruleset']);
  const told: Told[] = [];
  const play = async (body: (since: () => number) => Promise<Played>): Promise<void> => {
    const row = await playOne(node, NODE_WAYS[told.length]?.[0] ?? '', body);
    process.stdout.write(`${line(row)}\n`);
    told.push(row);
  };
  let last = '';
  let daemon: Bun.Subprocess | undefined;
  await play(async () => {
    last = (await maker.make('last')).id;
    return { outcome: `doctor: ${await diagnose(machine)}` };
  });
  await play(async () => {
    const sandbox = sandboxOf(machine, last);
    await maker.crash('last');
    const startedAt = Date.now();
    await machine.ok(['sh', '-c', `umount --lazy ${sandbox}; rm ${sandbox}`]);
    let noticed: number | undefined;
    await until(async () => {
      if ((await watchOf(machine)).outlived > 0) noticed ??= Date.now() - startedAt;
      return resultsOf(machine, last).length === 0;
    });
    const repaired = Date.now() - startedAt;
    await maker.make('next');
    // The runtime's own DEL comes late.
    for (const name of ['last', 'next']) await maker.remove(name);
    return { outcome: 'deleted; the pool has room', repaired, ...(noticed === undefined ? {} : { noticed }) };
  });
  const before = await dumpOf(node);
  await play(async () => {
    await kill(machine, 'KILL');
    return { outcome: `doctor: ${await diagnose(machine)}` };
  });
  await play(async since => {
    await flush();
    await startRepairing(machine);
    return await untilRepaired(node, before, since);
  });
  await play(async () => {
    const longest = { noticed: 0, repaired: 0, traffic: 0 };
    for (let i = 0; i < KILLS; i++) {
      const startedAt = Date.now();
      await flush();
      await Bun.sleep(FIRST_KILL_MS + i * KILL_STEP_MS);
      await kill(machine, 'KILL');
      daemon = await startRepairing(machine);
      const { noticed = 0, repaired = 0 } = await untilRepaired(node, before, () => Date.now() - startedAt);
      longest.noticed = Math.max(longest.noticed, noticed);
      longest.repaired = Math.max(longest.repaired, repaired);
      longest.traffic = Math.max(longest.traffic, node.probe.latest().at - startedAt);
    }
    return { outcome: 'repaired', ...longest };
  });
  await play(async () => {
    await kill(machine, 'STOP');
    const found = await diagnose(machine);
    await maker.make('another');
    await maker.remove('another');
    return { outcome: `doctor: ${found}; containers come and go` };
  });
  await play(async () => {
    await flush();
    const startedAt = Date.now();
    await kill(machine, 'CONT');
    // nsenter has stopped itself with its child, and would never see the end of it.
    daemon?.kill('SIGCONT');
    return await untilRepaired(node, before, () => Date.now() - startedAt);
  });
  expect(told.map(({ way, outcome }) => [way, outcome])).toEqual(
    NODE_WAYS.map(([way, outcome]) => [way, outcome]),
  );
  expect((await node.transferred()).isOpen).toBe(true);
  expect(told.filter(({ changed }) => changed.length > 0)).toEqual([]);
}

type Played = Pick<Told, 'outcome' | 'noticed' | 'repaired' | 'traffic'>;

async function playOne(
  node: DamagedNode,
  way: string,
  body: (since: () => number) => Promise<Played>,
): Promise<Told> {
  const { probe } = node;
  const [startedAt, sent] = [Date.now(), (await node.transferred()).lost];
  const played = await body(() => Date.now() - startedAt);
  const { isUp, at } = probe.latest();
  return {
    way,
    ...played,
    outcome: isUp ? played.outcome : `${played.outcome}, without traffic`,
    ...(at > startedAt && isUp ? { traffic: played.traffic ?? at - startedAt } : {}),
    lost: (await node.transferred()).lost - sent,
    changed: [],
  };
}

/** Waits until the kernel has everything again and packets pass. */
async function untilRepaired(
  node: DamagedNode,
  before: Awaited<ReturnType<typeof dumpOf>>,
  since: () => number,
): Promise<Played> {
  const { machine, probe } = node;
  let noticed: number | undefined;
  await until(async () => {
    const { checks, drifted } = await watchOf(machine);
    if (countOf(checks, 'drifted') > 0) noticed ??= since();
    return drifted.length === 0 && probe.latest().isUp && (await changedSince(node, before)).length === 0;
  }).catch(async () => {
    const left = await changedSince(node, before);
    throw new Error(`Not repaired: ${left.join('; ')}, ${JSON.stringify(await watchOf(machine))}`);
  });
  return { outcome: 'repaired', repaired: since(), ...(noticed === undefined ? {} : { noticed }) };
}

/** Sends the daemon a signal; a killed one has ended afterwards. */
async function kill(machine: Machine, signal: 'KILL' | 'STOP' | 'CONT'): Promise<void> {
  const pids = machine.processes('/catena', '/catena-core').filter(pid => isDaemon(machine, pid));
  if (pids.length !== 1) throw new Error(`Cannot signal the daemon: processes ${pids.join(', ') || 'none'}`);
  await machine.ok(['kill', `-${signal}`, ...pids]);
  if (signal === 'KILL') await until(() => !pids.some(pid => isDaemon(machine, pid)));
}

function isDaemon(machine: Machine, pid: string): boolean {
  try {
    return fs.readFileSync(machine.path(`/proc/${pid}/cmdline`), 'utf8').split('\0')[1] === 'daemon';
  } catch {
    return false;
  }
}

/** Cached results of a container. */
function resultsOf(machine: Machine, id: string): string[] {
  const dir = machine.path(RESULTS);
  return fs
    .readdirSync(dir)
    .filter(name => name.includes(id))
    .map(name => `${dir}/${name}`);
}

/** Path, in the machine, of a container's namespace, as its result names it. */
function sandboxOf(machine: Machine, id: string): string {
  const [file = ''] = resultsOf(machine, id).filter(path => path.includes(`/${TIGHT}-`));
  const { result } = JSON.parse(fs.readFileSync(file, 'utf8')) as Row;
  return result.interfaces.find(({ sandbox }: Row) => sandbox).sandbox;
}
