// What does a stopped daemon cost its clients, and what does it do when it continues?
import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import type { RunRequest } from '../../src/daemon/protocol.ts';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { holdLeases, holdLock } from '../helpers/held-leases.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { bridgeOf, leasesIn, startPlugin, stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot, type Need, testNeeding } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';
import { bytesOf } from '../helpers/wire.ts';

/** A call waits for a second, then does its work; without that second it takes a tenth of one. */
const timeoutMs = 10_000;

describeRoot('a daemon that is stopped', () => {
  const makeLab = useLabs();

  test('is waited for briefly, and does not repeat requests of that time after it continues', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const chain = writeChain(lab, fullChain(lab));
    const command = (verb: string, path: string, id: string) =>
      lab.run(
        lab.host,
        [
          ...[CATENA, verb, chain.name, path, '--container-id', id],
          ...['--file', `${lab.tmp}/${chain.name}.conflist`, '--bin-dir', BIN_DIR],
        ],
        { env: directories(lab.tmp), timeoutMs },
      );
    const [first, second, third, fourth] = await Promise.all([1, 2, 3, 4].map(() => lab.container()));
    if (!first || !second || !third || !fourth) throw new Error('unreachable');
    const daemon = await startDaemon(lab);
    expect(await lab.plugin('bridge', { command: 'ADD', conf, container: first })).toMatchObject({
      exitCode: 0,
    });

    process.kill(daemon.pid, 'SIGSTOP');
    // Added and deleted while it is stopped; deleted only; added and left; by the runner as well.
    const calls = [
      await lab.plugin('bridge', { command: 'ADD', conf, container: second, timeoutMs }),
      await lab.plugin('bridge', { command: 'DEL', conf, container: second, timeoutMs }),
      await lab.plugin('bridge', { command: 'DEL', conf, container: first, timeoutMs }),
      await lab.plugin('bridge', { command: 'ADD', conf, container: first, timeoutMs }),
      await lab.plugin('bridge', { command: 'ADD', conf, container: third, timeoutMs }),
      await command('add', fourth.path, fourth.id),
    ];
    expect(calls.map(({ exitCode, stderr }) => `${exitCode}${stderr}`)).toEqual(calls.map(() => '0'));
    const before = await picture(lab);
    expect(leasesIn(lab)).toHaveLength(6);

    process.kill(daemon.pid, 'SIGCONT');
    await until(async () => (await stateOf(daemon)).declined?.stale?.count === calls.length);
    expect(await picture(lab)).toEqual(before);
    expect(await lab.plugin('bridge', { command: 'DEL', conf, container: first })).toMatchObject({
      exitCode: 0,
    });
    expect((await command('del', fourth.path, fourth.id)).exitCode).toBe(0);
    expect(await stateOf(daemon)).toMatchObject({ served: 3 });
    expect(leasesIn(lab)).toHaveLength(2);
  });

  test('does nothing for clients that were killed while it was stopped', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const container = await lab.container();
    const daemon = await startDaemon(lab);
    expect(await lab.plugin('bridge', { command: 'ADD', conf, container })).toMatchObject({ exitCode: 0 });
    process.kill(daemon.pid, 'SIGSTOP');
    const file = `${lab.tmp}/podnet.conflist`;
    writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name: 'podnet', plugins: [conf] }));
    const identity = { CNI_CONTAINERID: container.id, CNI_NETNS: container.path, CNI_IFNAME: 'eth0' };
    const call = (verb: string, more: object) => ({
      ...{ plugin: 'bridge', args: [], env: { ...directories(lab.tmp), ...identity, CNI_COMMAND: verb } },
      stdin: JSON.stringify({ ...conf, ...more }),
    });
    const gc = ['gc', 'podnet', '--all', '--file', file, '--bin-dir', BIN_DIR];
    const wire = `${daemon.socket}.wire`;
    await sendAndGo(wire, requestBy(daemon, call('DEL', {})));
    await sendAndGo(wire, requestBy(daemon, call('GC', { 'cni.dev/valid-attachments': [] })));
    await sendAndGo(wire, requestBy(daemon, { args: gc, env: directories(lab.tmp) }));
    const body = JSON.stringify({ args: gc });
    const head = ['POST /v1/call HTTP/1.1', 'Host: catena', `Content-Length: ${body.length}`].join('\r\n');
    await sendAndGo(daemon.socket, Buffer.from(`${head}\r\n\r\n${body}`));
    await Bun.sleep(1_100);
    // The container lives on, as one of the same name that was added again would.
    const before = await picture(lab);
    process.kill(daemon.pid, 'SIGCONT');
    await until(async () => (await stateOf(daemon)).declined?.stale?.count === 4);
    await Bun.sleep(500);
    expect(await picture(lab)).toEqual(before);
  });

  test('in the middle of a call is killed, and the client takes the call over', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const { waiter, release } = await holdLock(lab, `${lab.tmp}/leases/podnet`);
    const daemon = await startDaemon(lab);
    const container = await lab.container();
    const adding = startPlugin(lab, 'bridge', { command: 'ADD', conf, container });
    const worker = await waiter('--worker');
    process.kill(daemon.pid, 'SIGSTOP');
    await until(async () => !existsSync(`/proc/${worker}`));
    release();
    expect(await adding.exited).toBe(0);
    expect(leasesIn(lab)).toHaveLength(2);
    expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toHaveLength(1);
    expect(await daemon.exited).not.toBe(0);
    expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({ exitCode: 0 });
    expect(leasesIn(lab)).toEqual([]);
  });

  test('in the middle of a command is killed, and its client completes the command', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const daemon = await startDaemon(lab);
    const adding = chain.add(container);
    const worker = await waiter('--worker');
    process.kill(daemon.pid, 'SIGSTOP');
    await until(async () => !existsSync(`/proc/${worker}`));
    release();
    expect((await adding).ips).toHaveLength(2);
    expect(await chain.leases()).toHaveLength(2);
    expect(await chain.run('check', container)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await chain.leases()).toEqual([]);
  });

  test('in the middle of a command is ended for another command on the same attachment', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const daemon = await startDaemon(lab);
    const file = `${lab.tmp}/${chain.name}.conflist`;
    const argv = [CATENA, 'add', chain.name, container.path, '--container-id', container.id, '--file', file];
    const env = Object.entries(directories(lab.tmp)).map(([name, value]) => `${name}=${value}`);
    const adding = lab.start(lab.host, ['env', ...env, ...argv, '--bin-dir', BIN_DIR]);
    await waiter('--worker');
    process.kill(daemon.pid, 'SIGSTOP');
    // The client of the ADD does not take it over.
    adding.kill('SIGKILL');
    release();
    const begin = performance.now();
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0 });
    expect(performance.now() - begin).toBeLessThan(timeoutMs);
    expect(await daemon.exited).not.toBe(0);
    expect(await chain.leases()).toEqual([]);
  });

  testNeeding(
    'by a frozen cgroup, with its workers, is killed in the same way',
    async () => {
      const lab = await makeLab();
      const conf = bridgeOf(lab);
      const { waiter, release } = await holdLock(lab, `${lab.tmp}/leases/podnet`);
      const daemon = await startDaemon(lab);
      const container = await lab.container();
      const adding = startPlugin(lab, 'bridge', { command: 'ADD', conf, container });
      await waiter('--worker');
      const group = `${FREEZER}/catena-test-${crypto.randomUUID()}`;
      mkdirSync(group);
      for (const pid of [daemon.pid, ...childrenOf(daemon.pid)])
        writeFileSync(`${group}/cgroup.procs`, String(pid));
      writeFileSync(`${group}/freezer.state`, 'FROZEN');
      release();
      try {
        expect(await Promise.race([adding.exited, Bun.sleep(timeoutMs)])).toBe(0);
      } finally {
        writeFileSync(`${group}/freezer.state`, 'THAWED');
      }
      expect(await daemon.exited).not.toBe(0);
      expect(leasesIn(lab)).toHaveLength(2);
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toHaveLength(1);
      await until(() => tryTo(() => rmdirSync(group)));
    },
    findFreezerProblem(),
  );

  test('and has no room for another connection is not waited for', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const daemon = await startDaemon(lab);
    process.kill(daemon.pid, 'SIGSTOP');
    const waiting = Array.from({ length: 600 }, () => net.connect(daemon.socket).on('error', () => {}));
    const container = await lab.container();
    const added = await lab.plugin('bridge', { command: 'ADD', conf, container, timeoutMs });
    expect(added).toMatchObject({ exitCode: 0, stderr: '' });
    for (const socket of waiting) socket.destroy();
  });

  test('is not confused with one whose call takes long', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const { waiter, release } = await holdLock(lab, `${lab.tmp}/leases/podnet`);
    const daemon = await startDaemon(lab);
    const container = await lab.container();
    const adding = startPlugin(lab, 'bridge', { command: 'ADD', conf, container });
    const worker = await waiter('--worker');
    // Longer than a client waits for a sign of life.
    await Bun.sleep(2_500);
    expect(existsSync(`/proc/${worker}`)).toBe(true);
    release();
    expect(await adding.exited).toBe(0);
    expect(await stateOf(daemon)).toMatchObject({ served: 1, declined: {} });
  });

  test('delays a call no longer when only its worker is stopped: another worker serves it', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const daemon = await startDaemon(lab, '--workers', '1');
    const [first, second] = [await lab.container(), await lab.container()];
    expect(await lab.plugin('bridge', { command: 'ADD', conf, container: first })).toMatchObject({
      exitCode: 0,
    });
    for (const pid of childrenOf(daemon.pid)) process.kill(pid, 'SIGSTOP');
    const added = await lab.plugin('bridge', { command: 'ADD', conf, container: second, timeoutMs: 20_000 });
    expect(added).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await stateOf(daemon)).toMatchObject({ served: 2, declined: {} });
    expect(leasesIn(lab)).toHaveLength(4);
  });
});

const FREEZER = '/sys/fs/cgroup/freezer';

function findFreezerProblem(): Need {
  const group = `${FREEZER}/catena-probe-${crypto.randomUUID()}`;
  return tryTo(() => mkdirSync(group)) && tryTo(() => rmdirSync(group))
    ? undefined
    : `needs the right to make groups below "${FREEZER}"`;
}

function tryTo(work: () => void): boolean {
  try {
    work();
    return true;
  } catch {
    return false;
  }
}

/** The bytes of a request, as a client of the daemon sends it. */
function requestBy(
  daemon: Daemon,
  request: Pick<RunRequest, 'args' | 'env'> & Partial<RunRequest>,
): Uint8Array {
  const [executable = '', network = '', mount = ''] = [
    `${BIN_DIR}/catena-core`,
    `/proc/${daemon.pid}/ns/net`,
    `/proc/${daemon.pid}/ns/mnt`,
  ].map(path => {
    const { dev, ino } = statSync(path);
    return `${dev}:${ino}`;
  });
  const place = { executable, network, mount };
  return bytesOf({ cwd: '/', stdin: '', key: crypto.randomUUID(), ...request, place });
}

/** Sends bytes and closes the connection, as the kernel does for a client that is killed. */
function sendAndGo(path: string, bytes: Uint8Array): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const client = net.connect(path, () => client.end(bytes));
  client.on('finish', () => client.destroy()).on('close', () => resolve());
  client.on('error', reject);
  return promise;
}

/** All that calls could have changed. */
async function picture(lab: Lab): Promise<unknown> {
  return { host: await lab.dump(lab.host), leases: leasesIn(lab).sort() };
}
