// Does a socket that a service manager keeps start a daemon that serves, gives the names back, and loses no call?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { socketPathOf, wireOf } from '../../src/daemon/protocol.ts';
import { CATENA } from '../helpers/catena.ts';
import { activated, keepSocket } from '../helpers/listening-socket.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { bridgeOf } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';
import { receiveDatagrams } from '../helpers/unix-receiver.ts';
import { until } from '../helpers/until.ts';

describeRoot('a daemon whose socket a service manager keeps', () => {
  const makeLab = useLabs();

  const start = (lab: Lab, fd: number, notify: string, ...args: string[]) => {
    const argv = ['nsenter', `--net=${lab.host.path}`, CATENA, 'daemon', '--log', 'none', ...args];
    return Bun.spawn(activated(argv, notify), {
      env: { PATH: process.env.PATH, ...directories(lab.tmp), WATCHDOG_USEC: '300000' },
      stdio: ['ignore', 'ignore', 'pipe', fd],
    });
  };
  const requestState = async (socket: string): Promise<{ pid: number; startedBy: string; served: number }> =>
    (
      await fetch('http://catena/v1/state', { unix: socket, signal: AbortSignal.timeout(20_000) })
    ).json() as never;

  test('is not waited for by the call that starts it, and serves the next ones', async () => {
    const lab = await makeLab();
    fs.mkdirSync(`${lab.tmp}/run`, { recursive: true });
    const socket = socketPathOf(`${lab.tmp}/run`);
    const kept = keepSocket(socket);
    const notified = receiveDatagrams(`${lab.tmp}/notify`);
    const conf = { ...bridgeOf(lab), name: 'probe', bridge: 'br1' };
    const container = await lab.container();
    const call = (command: string) => lab.plugin('bridge', { command, conf, container });
    // No daemon runs yet: the front has connected, which starts one, and executes the Bun program.
    expect(await call('ADD')).toMatchObject({ exitCode: 0 });
    const status = () =>
      lab.run(lab.host, [CATENA, 'daemon', '--status', '--json'], { env: directories(lab.tmp) });
    expect(await status()).toMatchObject({ exitCode: 3 });
    // A person's request waits for the daemon.
    const asked = requestState(socket);
    const daemon = start(lab, kept.fd, `${lab.tmp}/notify`);
    expect(await asked).toMatchObject({ pid: daemon.pid, startedBy: 'systemd', served: 0 });
    expect(fs.lstatSync(socket).isSocket()).toBe(true);
    expect(await call('DEL')).toMatchObject({ exitCode: 0 });
    expect(await requestState(socket)).toMatchObject({ pid: daemon.pid, served: 1 });
    const said: string[] = [];
    await until(async () => {
      said.push(...notified.take());
      return said.includes('WATCHDOG=1');
    });
    expect(said).toContain('READY=1');
    daemon.kill('SIGTERM');
    expect(await daemon.exited).toBe(0);
    expect(notified.take()).toContain('STOPPING=1');
    for (const name of [socket, wireOf(socket)]) expect(fs.readlinkSync(name)).toBe(`${socket}.start`);
    expect(fs.readdirSync(`${lab.tmp}/run`).filter(name => /calls|\d$/.test(name))).toEqual([]);
    expect(await status()).toMatchObject({ exitCode: 3 });
    notified.close();
    kept.close();
  });

  test('serves again when it is started after one was killed, which left its own names', async () => {
    const lab = await makeLab();
    fs.mkdirSync(`${lab.tmp}/run`, { recursive: true });
    const socket = socketPathOf(`${lab.tmp}/run`);
    const kept = keepSocket(socket);
    const first = start(lab, kept.fd, '');
    await until(() => fs.lstatSync(socket).isSocket());
    first.kill('SIGKILL');
    await first.exited;
    const second = start(lab, kept.fd, '');
    await until(async () => (await requestState(socket).catch(() => undefined))?.pid === second.pid);
    second.kill('SIGTERM');
    expect(await second.exited).toBe(0);
    expect(fs.readlinkSync(socket)).toBe(`${socket}.start`);
    kept.close();
  });

  test.each([
    ['of another process', 'LISTEN_PID=1 LISTEN_FDS=1'],
    ['that are no listening sockets', 'LISTEN_PID=$$ LISTEN_FDS=1'],
    ['without end', 'LISTEN_PID=$$ LISTEN_FDS=2000000000'],
    ['that are no number', 'LISTEN_PID=$$ LISTEN_FDS=1e'],
  ])('takes no descriptors %s', async (_, variables) => {
    const lab = await makeLab();
    fs.mkdirSync(`${lab.tmp}/run`, { recursive: true });
    const socket = socketPathOf(`${lab.tmp}/run`);
    const fd = fs.openSync(`${lab.tmp}/file`, 'w+');
    const argv = ['nsenter', `--net=${lab.host.path}`, CATENA, 'daemon', '--log', 'none'];
    const daemon = Bun.spawn(['sh', '-c', `${variables} exec "$0" "$@"`, ...argv], {
      env: { PATH: process.env.PATH, ...directories(lab.tmp), NOTIFY_SOCKET: `/${'x'.repeat(200)}` },
      stdio: ['ignore', 'ignore', 'ignore', fd],
    });
    await until(async () => (await requestState(socket).catch(() => undefined))?.pid === daemon.pid);
    daemon.kill('SIGTERM');
    expect(await daemon.exited).toBe(0);
    expect(fs.existsSync(socket)).toBe(false);
    expect(fs.readFileSync(`${lab.tmp}/file`, 'utf8')).toBe('');
    fs.closeSync(fd);
  });

  test('loses no call while daemons end and start, one after the other', async () => {
    const lab = await makeLab();
    fs.mkdirSync(`${lab.tmp}/run`, { recursive: true });
    const socket = socketPathOf(`${lab.tmp}/run`);
    const kept = keepSocket(socket);
    const conf = { ...bridgeOf(lab), cniVersion: '1.1.0' };
    const container = await lab.container();
    let isOver = false;
    const outcomes: string[] = [];
    const caller = async (): Promise<void> => {
      while (!isOver) {
        const { exitCode, stdout } = await lab.plugin('bridge', { command: 'STATUS', conf, container });
        outcomes.push(`${exitCode}${stdout}`);
      }
    };
    const callers = Promise.all([caller(), caller(), caller()]);
    const served: number[] = [];
    for (let round = 0; round < 3; round++) {
      const daemon = start(lab, kept.fd, '');
      await until(async () => ((await requestState(socket)).served ?? 0) >= 5);
      served.push((await requestState(socket)).served);
      daemon.kill('SIGTERM');
      expect(await daemon.exited).toBe(0);
    }
    isOver = true;
    await callers;
    expect(outcomes.filter(one => one !== '0')).toEqual([]);
    expect(outcomes.length).toBeGreaterThan(15);
    kept.close();
  });
});
