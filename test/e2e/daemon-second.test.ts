// What happens when a second daemon is started for the same socket, or the socket is taken away?
import { expect, test } from 'bun:test';
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { wireOf } from '../../src/daemon/protocol.ts';
import { CATENA, PROGRAM } from '../helpers/catena.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { holdLeases } from '../helpers/held-leases.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { bridgeOf, stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

/** Another daemon has the socket. */
const TAKEN = 3;

describeRoot('a second daemon', () => {
  const makeLab = useLabs();

  test('leaves the socket to the first one, and names its process', async () => {
    const lab = await makeLab();
    const first = await startDaemon(lab);
    const { exitCode, stderr } = await startAndWait(lab);
    expect(exitCode).toBe(TAKEN);
    expect(stderr).toContain(
      `Cannot listen on "${first.socket}": process ${first.pid} (${PROGRAM}) has it already`,
    );
    await isServedBy(lab, first);
  });

  test('that starts after one was killed removes all that it left beside the socket', async () => {
    const lab = await makeLab();
    const first = await startDaemon(lab);
    process.kill(first.pid, 'SIGKILL');
    await first.exited;
    // The name that a socket has before its daemon renames it: a kill can come in between.
    writeFileSync(`${first.socket}.4711`, '');
    const second = await startDaemon(lab);
    expect(readdirSync(dirname(first.socket)).filter(name => /sock\.\d|calls/.test(name))).toHaveLength(1);
    await isServedBy(lab, second);
  });

  test('that starts at the same time as others exits, and exactly one stays', async () => {
    const lab = await makeLab();
    const argv = ['env', ...environmentOf(lab), CATENA, 'daemon', '--log', 'none'];
    const all = Array.from({ length: 6 }, () => lab.start(lab.host, argv));
    const codes: number[] = [];
    for (const child of all) void child.exited.then(code => codes.push(code));
    await until(() => codes.length === 5);
    await Bun.sleep(500);
    expect(codes).toEqual([TAKEN, TAKEN, TAKEN, TAKEN, TAKEN]);
    const state = await (
      await fetch('http://catena/v1/state', { unix: `${lab.tmp}/run/catena.sock` })
    ).json();
    expect(all.filter(({ exitCode }) => exitCode === null).map(({ pid }) => pid)).toEqual([
      (state as { pid: number }).pid,
    ]);
  });

  test('replaces the first one with --replace, which finishes its requests', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const first = await startDaemon(lab);
    const adding = chain.add(container);
    await waiter('--worker');
    const second = await startDaemon(lab, '--replace');
    await isServedBy(lab, second);
    release();
    expect((await adding).ips).toHaveLength(2);
    expect(await first.exited).toBe(TAKEN);
    expect(first.said()).toContain('another daemon is replacing this one');
    expect(await stateOf(second)).toMatchObject({ pid: second.pid });
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
  });

  test('does not replace one that is stopped, since that cannot hand over', async () => {
    const lab = await makeLab();
    const first = await startDaemon(lab);
    process.kill(first.pid, 'SIGSTOP');
    const { exitCode, stderr } = await startAndWait(lab, '--replace');
    expect(exitCode).toBe(TAKEN);
    expect(stderr).toContain(
      `process ${first.pid} (${PROGRAM}) has it and does not respond: stop it, then start again`,
    );
    process.kill(first.pid, 'SIGCONT');
    await isServedBy(lab, first);
  });

  test('with a run directory of its own leaves the gRPC socket to the first one', async () => {
    const lab = await makeLab();
    const grpc = `${lab.tmp}/grpc.sock`;
    await startDaemon(lab, '--grpc-socket', grpc);
    const { ino } = statSync(grpc);
    const { exitCode, stderr } = await startAndWait(
      lab,
      '--run-dir',
      `${lab.tmp}/other`,
      '--grpc-socket',
      grpc,
    );
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`Cannot listen on "${grpc}"`);
    expect(statSync(grpc).ino).toBe(ino);
    expect(existsSync(`${lab.tmp}/other/catena.sock`)).toBe(false);
  });

  test('starts after the first one was killed', async () => {
    const lab = await makeLab();
    const first = await startDaemon(lab);
    process.kill(first.pid, 'SIGKILL');
    await first.exited;
    await isServedBy(lab, await startDaemon(lab));
  });
});

describeRoot('a daemon', () => {
  const makeLab = useLabs();

  test.each([
    ['its socket', (lab: Lab) => rmSync(`${lab.tmp}/run/catena.sock`)],
    ['its socket for calls', (lab: Lab) => rmSync(`${lab.tmp}/run/catena.sock.wire`)],
    ['its whole directory', (lab: Lab) => rmSync(`${lab.tmp}/run`, { recursive: true })],
  ])('listens again after %s is removed', async (_, remove) => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    await isServedBy(lab, daemon);
    remove(lab);
    const sockets = [daemon.socket, wireOf(daemon.socket)];
    await until(() => sockets.every(socket => existsSync(socket)));
    await isServedBy(lab, daemon);
    expect((await startAndWait(lab)).exitCode).toBe(TAKEN);
    expect(await daemon.stop()).toBe(0);
    expect(sockets.filter(socket => existsSync(socket))).toEqual([]);
  });

  test('ends when its socket was removed and another daemon already listens there', async () => {
    const lab = await makeLab();
    const first = await startDaemon(lab);
    process.kill(first.pid, 'SIGSTOP');
    rmSync(`${lab.tmp}/run`, { recursive: true });
    const second = await startDaemon(lab);
    process.kill(first.pid, 'SIGCONT');
    expect(await first.exited).toBe(TAKEN);
    expect(first.said()).toContain('another daemon listens');
    await isServedBy(lab, second);
  });
});

function environmentOf(lab: Lab): string[] {
  return Object.entries(directories(lab.tmp)).map(pair => pair.join('='));
}

async function startAndWait(lab: Lab, ...args: string[]): Promise<{ exitCode: number; stderr: string }> {
  return lab.run(lab.host, [CATENA, 'daemon', '--log', 'none', ...args], {
    env: directories(lab.tmp),
    timeoutMs: 20_000,
  });
}

/** A call of a plugin is served by this one. */
async function isServedBy(lab: Lab, daemon: Daemon): Promise<void> {
  const { served } = await stateOf(daemon);
  const container = await lab.container();
  const conf = { ...bridgeOf(lab), name: 'probe', bridge: 'br1' };
  for (const command of ['ADD', 'DEL'])
    expect(await lab.plugin('bridge', { command, conf, container })).toMatchObject({ exitCode: 0 });
  expect(await stateOf(daemon)).toMatchObject({ pid: daemon.pid, served: served + 2 });
}
