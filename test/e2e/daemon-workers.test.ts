// What becomes of the calls of a node whose daemon cannot start workers?
import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { type Daemon, startDaemon, startDaemonIn } from '../helpers/daemon.ts';
import { within } from '../helpers/lines.ts';
import { type Container, type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { bridgeOf, leasesIn, stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot, type Need, testNeeding } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

describeRoot('a daemon that cannot start workers', () => {
  const makeLab = useLabs();

  test('because its descriptors are used up leaves all calls to their clients, and ends', async () => {
    const lab = await makeLab();
    const node = await prepare(lab);
    const daemon = await startDaemon(lab);
    await node.cycle();
    await endWorkers(daemon);
    await limitFiles(lab, daemon);
    await node.cycle();
    expect(await daemon.exited).toBe(1);
    expect(daemon.said()).toContain('no worker could be started for a while');
    await node.cycle();
  });

  testNeeding(
    'because it reached its limit of processes leaves all calls to their clients, and ends',
    async () => {
      const lab = await makeLab();
      const node = await prepare(lab);
      const daemon = await startDaemon(lab);
      await node.cycle();
      const group = `${PIDS}/catena-test-${crypto.randomUUID()}`;
      mkdirSync(group);
      try {
        writeFileSync(`${group}/cgroup.procs`, String(daemon.pid));
        writeFileSync(`${group}/pids.max`, '1');
        await endWorkers(daemon);
        await node.cycle();
        await report(lab, daemon).catch(async error => {
          if ((await daemon.exited) !== ABORTED) throw error;
        });
        expect([1, ABORTED]).toContain(await daemon.exited);
      } finally {
        await until(() => tryTo(() => rmdirSync(group)));
      }
      await node.cycle();
    },
    findPidsProblem(),
  );

  test('serves calls again as soon as it can', async () => {
    const lab = await makeLab();
    const node = await prepare(lab);
    const daemon = await startDaemon(lab);
    await node.cycle();
    await endWorkers(daemon);
    const lift = await limitFiles(lab, daemon);
    await node.cycle();
    await lift();
    await until(async () => (await stateOf(daemon)).problem === undefined);
    const { served } = await stateOf(daemon);
    await node.cycle();
    expect((await stateOf(daemon)).served).toBe(served + 4);
  });

  test('is not one whose initial directory was deleted', async () => {
    const lab = await makeLab();
    const node = await prepare(lab);
    const dir = `${lab.tmp}/release-1`;
    mkdirSync(dir);
    const daemon = await startDaemonIn(lab, dir);
    rmSync(dir, { recursive: true });
    await node.cycle();
    await endWorkers(daemon);
    await node.cycle();
    expect(await stateOf(daemon)).toMatchObject({ served: 8, declined: {} });
  });
});

const PIDS = '/sys/fs/cgroup/pids';

/** The engine ends where the kernel gives it no thread, for collecting garbage, compiling or reading a file: it asks for them on demand. */
const ABORTED = 128 + 6;

/** The daemon says that it serves no calls, in its state, to a probe and in doctor. */
async function report(lab: Lab, daemon: Daemon): Promise<void> {
  expect((await stateOf(daemon)).declined.workers.count).toBeGreaterThan(0);
  expect((await daemon.fetch('/readyz')).status).toBe(503);
  const doctor = await lab.run(
    lab.host,
    [`${BIN_DIR}/catena`, 'doctor', '--conf-dir', lab.tmp, '--bin-dir', BIN_DIR],
    {
      env: {
        CATENA_RUN_DIR: `${lab.tmp}/run`,
        CATENA_STATE_DIR: `${lab.tmp}/state`,
        CATENA_CNI_CACHE_DIR: `${lab.tmp}/cni`,
      },
    },
  );
  expect(doctor.stdout).toContain('daemon: it serves no calls: cannot start a worker');
}

function findPidsProblem(): Need {
  const group = `${PIDS}/catena-probe-${crypto.randomUUID()}`;
  return tryTo(() => mkdirSync(group)) && tryTo(() => rmdirSync(group))
    ? undefined
    : `needs the right to make groups below "${PIDS}"`;
}

function tryTo(work: () => void): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

async function endWorkers({ pid }: Daemon): Promise<void> {
  for (const child of childrenOf(pid)) process.kill(child, 'SIGKILL');
  await until(() => childrenOf(pid).length === 0);
}

/** Leaves room for a connection, but not for the pipes of a process. @returns lifts that again */
async function limitFiles(lab: Lab, { pid }: Daemon): Promise<() => Promise<void>> {
  const used = new Set(readdirSync(`/proc/${pid}/fd`).map(Number));
  let free = 0;
  while (used.has(free)) free += 1;
  const set = async (files: number): Promise<void> => {
    const { exitCode } = await lab.run(lab.host, ['prlimit', `--pid=${pid}`, `--nofile=${files}:4096`]);
    expect(exitCode).toBe(0);
  };
  await set(free + 1);
  return () => set(4096);
}

/** ADD and DEL by a plugin call and by a command, both of which have to succeed. */
async function prepare(lab: Lab): Promise<{ cycle(): Promise<void> }> {
  const chain = writeChain(lab, { ...fullChain(lab), name: 'other' });
  const conf: Row = bridgeOf(lab);
  const [one, two]: Container[] = await Promise.all([lab.container(), lab.container()]);
  if (!one || !two) throw new Error('unreachable');
  return {
    async cycle() {
      expect(await lab.plugin('bridge', { command: 'ADD', conf, container: one })).toMatchObject({
        exitCode: 0,
        stderr: '',
      });
      expect(leasesIn(lab)).toHaveLength(2);
      expect((await chain.add(two)).ips).toHaveLength(2);
      expect(await lab.plugin('bridge', { command: 'DEL', conf, container: one })).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
      expect(await chain.run('del', two)).toMatchObject({ exitCode: 0, stderr: '' });
      expect(await chain.leases()).toEqual([]);
    },
  };
}

describeRoot('the workers of a daemon', () => {
  const makeLab = useLabs();

  test('that hold devices to delete serve other calls of the network: not one starts for each', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab, '--workers', '2');
    const conf = bridgeOf(lab);
    const all = await Promise.all(Array.from({ length: 16 }, () => lab.container()));
    for (const container of all) await lab.plugin('bridge', { command: 'ADD', conf, container });
    await Promise.all(all.map(container => lab.plugin('bridge', { command: 'DEL', conf, container })));
    const { served, pool } = await stateOf(daemon);
    expect(served).toBe(32);
    // Ten if each kept its own. One that the kernel keeps waiting for half a second, as on a busy machine, is not at work: another starts.
    expect(pool.workers).toBeLessThan(6);
    expect(leasesIn(lab)).toEqual([]);
  });

  test('delete the devices of a lone DEL themselves: no other process starts for that', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    const conf = bridgeOf(lab);
    const [one, two] = [await lab.container(), await lab.container()];
    for (const container of [one, two]) await lab.plugin('bridge', { command: 'ADD', conf, container });
    const before = childrenOf(daemon.pid);
    expect(before).toHaveLength(1);
    for (const container of [one, two]) {
      const { exitCode } = await lab.plugin('bridge', { command: 'DEL', conf, container });
      expect(exitCode).toBe(0);
      expect(childrenOf(daemon.pid)).toEqual(before);
    }
    const links = await lab.ip(lab.host, 'link', 'show', 'type', 'veth');
    expect(links).toEqual([]);
    expect(leasesIn(lab)).toEqual([]);
  });

  test('that hold a deletion serve no call that may hang: a DEL waits for no plugin of another container', async () => {
    const lab = await makeLab();
    await startDaemon(lab, '--workers', '1');
    const hanging = `${lab.tmp}/hanging`;
    writeFileSync(hanging, '');
    const script = `#!/bin/sh\n: > ${lab.tmp}/begun\nwhile [ -e ${hanging} ]; do sleep 0.05; done\nexit 1\n`;
    writeFileSync(`${lab.tmp}/foreign`, script, { mode: 0o755 });
    const conf = bridgeOf(lab);
    const hangs = { ...conf, ipam: { type: 'foreign' } };
    const [gone, one, two] = await Promise.all([lab.container(), lab.container(), lab.container()]);
    await lab.plugin('bridge', { command: 'ADD', conf, container: gone });
    const add = (container: Container) =>
      lab.plugin('bridge', { command: 'ADD', conf: hangs, container, cniPath: `${BIN_DIR}:${lab.tmp}` });
    const adds = [add(one)];
    await until(() => existsSync(`${lab.tmp}/begun`));
    const del = lab.plugin('bridge', { command: 'DEL', conf, container: gone });
    await Bun.sleep(100);
    adds.push(add(two));
    expect(await within(10_000, 'DEL', del)).toMatchObject({ exitCode: 0, stdout: '' });
    rmSync(hanging);
    for (const { exitCode } of await Promise.all(adds)) expect(exitCode).toBe(1);
    expect(leasesIn(lab)).toEqual([]);
  });
});
