// What does a daemon do with more than it can take: clients, bytes, calls of a worker, a disk that is full?
import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { wireOf } from '../../src/daemon/protocol.ts';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { bridgeOf, startPlugin, stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';
import { receiveDatagrams } from '../helpers/unix-receiver.ts';
import { until } from '../helpers/until.ts';
import { bytesOf, requestHere, sendToWire } from '../helpers/wire.ts';

describeRoot('a daemon with limits', () => {
  const makeLab = useLabs();

  test('serves its owner only, and declines clients of another build or mount namespace', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    expect(statSync(daemon.socket).mode & 0o777).toBe(0o600);
    expect(statSync(path.dirname(daemon.socket)).mode & 0o777).toBe(0o700);
    const place = { executable: '0:1', network: '0:2', mount: '0:3' };
    const bytes = bytesOf(await requestHere({ place }));
    expect(await sendToWire(daemon.socket, bytes)).toEqual([{ kind: 'declined', begun: false }]);
    expect(statSync(wireOf(daemon.socket)).mode & 0o777).toBe(0o600);
  });

  test('notifies the service manager when it is ready, alive and stopping', async () => {
    const lab = await makeLab();
    const socket = `${lab.tmp}/notify`;
    const receiver = receiveDatagrams(socket);
    const notify = { NOTIFY_SOCKET: socket, WATCHDOG_USEC: '300000' };
    const env = Object.entries({ ...directories(lab.tmp), ...notify }).map(pair => pair.join('='));
    const child = lab.start(lab.host, ['env', ...env, CATENA, 'daemon', '--log', 'none']);
    const told: string[] = [];
    const hears = (word: string) =>
      until(async () => {
        told.push(...receiver.take());
        return told.includes(word);
      });
    await hears('READY=1');
    await hears('WATCHDOG=1');
    child.kill('SIGTERM');
    await hears('STOPPING=1');
    expect(await child.exited).toBe(0);
    receiver.close();
  });

  test('calls that hang in a foreign plugin hold up no call of another network', async () => {
    const lab = await makeLab();
    const binDir = `${lab.tmp}/bin`;
    mkdirSync(binDir);
    for (const name of ['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning', 'firewall'])
      symlinkSync(`${BIN_DIR}/${name}`, `${binDir}/${name}`);
    writeFileSync(
      `${binDir}/stuck`,
      `#!/bin/sh\nuntil [ -e ${lab.tmp}/go ]; do sleep 0.2; done\necho '{"cniVersion": "1.1.0"}'\n`,
      { mode: 0o755 },
    );
    const stuck = writeChain(lab, { cniVersion: '1.1.0', name: 'stuck', plugins: [{ type: 'stuck' }] });
    const chain = writeChain(lab, fullChain(lab));
    const daemon = await startDaemon(lab, '--workers', '1');
    const state = async () =>
      (await (await daemon.fetch('/v1/state')).json()) as {
        running: number;
        served: number;
        declined: object;
      };
    const hung: Promise<unknown>[] = [];
    const hang = async () => void hung.push(stuck.run('add', await lab.container(), { binDir }));
    // As many as may wait for something without a worker. They begin one after the other: each gives its turn away after half a second.
    for (let i = 0; i < 3; i++) await hang();
    await until(async () => (await state()).running === 3, { withinMs: 20_000 });
    const { served } = await state();
    const container = await lab.container();
    for (const verb of ['add', 'check', 'del'])
      expect(await chain.run(verb, container, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
    // They still hang, and the daemon made the calls.
    expect(await state()).toMatchObject({ running: 3, served: served + 3, declined: {} });
    writeFileSync(`${lab.tmp}/go`, '');
    await Promise.all(hung);
  });

  test('calls that hang in the workers hold up no call of another network', async () => {
    const lab = await makeLab();
    const cniPath = `${lab.tmp}/bin`;
    mkdirSync(cniPath);
    writeFileSync(`${cniPath}/stuck`, '#!/bin/sh\nexec sleep 600\n', { mode: 0o755 });
    symlinkSync(`${BIN_DIR}/host-local`, `${cniPath}/host-local`);
    const daemon = await startDaemon(lab);
    const hung: { kill(signal: 'SIGKILL'): void; readonly exited: Promise<number> }[] = [];
    const hang = async (name: string, count: number) => {
      const conf = { ...bridgeOf(lab), name, bridge: name, ipam: { type: 'stuck' } };
      const containers = await Promise.all(Array.from({ length: count }, () => lab.container()));
      for (const container of containers)
        hung.push(startPlugin(lab, 'bridge', { command: 'ADD', conf, container, cniPath }));
    };
    const container = await lab.container();
    const quickest = async () => {
      const took: number[] = [];
      for (const command of ['ADD', 'DEL', 'ADD', 'DEL']) {
        const since = performance.now();
        expect(
          await lab.plugin('bridge', { command, conf: bridgeOf(lab), container, cniPath }),
        ).toMatchObject({
          exitCode: 0,
          stderr: '',
        });
        took.push(performance.now() - since);
      }
      return Math.min(...took);
    };
    await hang('stuck0', 8);
    await until(async () => (await stateOf(daemon)).pool.busy === 8);
    // Long enough to count as hung; on a busy machine one more may still get a worker, as none has taken that long when it asks.
    await Bun.sleep(600);
    // More of this network are their clients' own; the workers that are left serve the others.
    for (let asked = 9; (await stateOf(daemon)).declined.busy === undefined; asked++) {
      await hang('stuck0', 1);
      await until(async () => {
        const { pool, queued, declined } = await stateOf(daemon);
        return queued === 0 && pool.busy + (declined.busy?.count ?? 0) === asked;
      });
    }
    const { served, pool, declined } = await stateOf(daemon);
    await quickest();
    expect(await stateOf(daemon)).toMatchObject({
      served: served + 4,
      queued: 0,
      pool: { busy: pool.busy },
      declined: { busy: declined.busy },
    });
    // What waits begins within a second or two, and none of it is declined.
    await hang('stuck1', 8);
    await until(async () => (await stateOf(daemon)).pool.busy === pool.busy + 8);
    expect(await stateOf(daemon)).toMatchObject({ queued: 0, declined: { busy: declined.busy } });
    // All that may wait do: further calls are their clients' own at once.
    await Bun.sleep(1_100);
    const { busy } = (await stateOf(daemon)).declined;
    expect(await quickest()).toBeLessThan(3_000);
    expect(await stateOf(daemon)).toMatchObject({
      pool: { busy: pool.busy + 8 },
      declined: { busy: { count: busy.count + 4 } },
    });
    for (const child of hung) child.kill('SIGKILL');
    await Promise.all(hung.map(({ exited }) => exited));
    await until(async () => (await stateOf(daemon)).pool.busy === 0);
  });

  test('serves a hundred clients at once', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const container = await lab.container();
    const daemon = await startDaemon(lab);
    await chain.add(container);
    const all = await Promise.all(Array.from({ length: 100 }, () => chain.run('check', container)));
    expect(all.filter(({ exitCode, stderr }) => exitCode !== 0 || stderr !== '')).toEqual([]);
    expect(await (await daemon.fetch('/v1/state')).json()).toMatchObject({
      ...{ served: 101, queued: 0, declined: {} },
    });
  });

  test('takes requests of 10 MB, and refuses invalid ones of that size', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const daemon = await startDaemon(lab);
    const filler = 'x'.repeat(10 * 1024 * 1024);
    const { plugins, ...list } = fullChain(lab);
    const delegates = [{ ...list, plugins: [{ ...plugins[0], filler }] }];
    const conf = { cniVersion: '1.1.0', name: 'pods', type: 'catena', delegates };
    const call = (command: string) => lab.plugin('catena', { command, conf, container });
    // A client makes a call itself where a busy machine lets no sign of life come in time.
    await until(async () => {
      const before = (await stateOf(daemon)).served;
      for (const command of ['ADD', 'DEL']) expect((await call(command)).exitCode).toBe(0);
      return (await stateOf(daemon)).served === before + 2;
    });
    expect((await daemon.fetch('/v1/call', { method: 'POST', body: filler })).status).toBe(400);
    expect((await daemon.fetch('/readyz')).status).toBe(200);
  });

  test('replaces workers that reach their limit of calls or memory, and ends idle ones', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const settings = settingsIn(lab, { callsPerWorker: 4, idleSeconds: 1, workers: 3 });
    const daemon = await startDaemon(lab, '--config', settings);
    const container = await lab.container();
    const [before] = childrenOf(daemon.pid);
    await chain.add(container);
    await until(async () => !childrenOf(daemon.pid).includes(before ?? 0));
    settingsIn(lab, { callsPerWorker: 5000, memoryPerWorkerMiB: 1, idleSeconds: 1, workers: 3 });
    // Memory is looked at every fifty calls; the settings every second.
    const seen = new Set<number>();
    await until(async () => {
      for (let i = 0; i < 13; i++) await chain.run('check', container);
      for (const pid of childrenOf(daemon.pid)) seen.add(pid);
      return seen.size > 2;
    });
    const containers = await Promise.all([1, 2, 3].map(() => lab.container()));
    const workers = async () => ((await (await daemon.fetch('/v1/state')).json()) as State).pool.workers;
    const begun = performance.now();
    await Promise.all(containers.map(one => chain.add(one)));
    const used = await workers();
    await until(async () => (await workers()) === 1);
    // One that was used is not ended sooner than the settings say.
    if (used > 1) expect(performance.now() - begun).toBeGreaterThanOrEqual(1_000);
    expect((await chain.run('del', container)).exitCode).toBe(0);
  });

  test('unmaps code that it does not use while no request comes, and serves the next one', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const daemon = await startDaemon(lab, '--config', settingsIn(lab, { idleSeconds: 1 }));
    const container = await lab.container();
    await chain.add(container);
    // One that the watch had started ends.
    await until(() => childrenOf(daemon.pid).length === 1);
    const processes = [daemon.pid, ...childrenOf(daemon.pid)];
    await until(async () => processes.every(pid => codeMiBOf(pid) < 16));
    expect((await chain.run('check', container)).exitCode).toBe(0);
    expect((await chain.run('del', container)).exitCode).toBe(0);
    expect([daemon.pid, ...childrenOf(daemon.pid)]).toEqual(expect.arrayContaining(processes));
  });

  test('fails on a full disk with a readable error, and recovers when there is space again', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const { CATENA_STATE_DIR: state = '', CATENA_RUN_DIR: run = '' } = directories(lab.tmp);
    const list = fullChain(lab);
    list.plugins[0].ipam.dataDir = `${state}/leases`;
    const { name } = writeChain(lab, list);
    const catena = (verb: string) =>
      `${CATENA} ${verb} ${name} ${container.path} --file ${lab.tmp}/${name}.conflist --bin-dir ${BIN_DIR}`;
    // The daemon sees the disk only in the same mount namespace as its clients.
    const script = [
      `mkdir -p ${state} && mount -t tmpfs -o size=256k none ${state}`,
      `${CATENA} daemon --log file:${state}/log --trace-dir ${state}/traces & daemon=$!`,
      `until [ -S ${run}/catena.sock ]; do sleep 0.05; done`,
      `dd if=/dev/zero of=${state}/filler bs=4k 2>${lab.tmp}/dd`,
      `${catena('add')}; echo "full $?"`,
      `rm ${state}/filler`,
      `${catena('add')} > ${lab.tmp}/result; echo "room $?"`,
      `${catena('del')}; echo "del $?"`,
      'kill $daemon; wait $daemon; echo "daemon $?"',
    ].join('\n');
    const { stdout, stderr } = await lab.run(lab.host, ['unshare', '--mount', 'sh', '-c', script], {
      env: directories(lab.tmp),
      timeoutMs: 50_000,
    });
    expect({ stdout, stderr }).toMatchObject({ stdout: 'full 1\nroom 0\ndel 0\ndaemon 0\n' });
    expect(stderr).toContain('ENOSPC');
    expect(existsSync(`${lab.tmp}/result`)).toBe(true);
  });
});

interface State {
  readonly pool: { readonly workers: number };
}

function settingsIn(lab: Lab, settings: object): string {
  const file = `${lab.tmp}/daemon.json`;
  writeFileSync(file, JSON.stringify(settings));
  return file;
}

/** How much code a process maps: 22 MiB after its start, and 36 once it has served calls. */
function codeMiBOf(pid: number): number {
  const mappings = readFileSync(`/proc/${pid}/smaps`, 'utf8').split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/);
  const code = mappings.filter(one => / r-xp .* \//.test(one));
  return code.reduce((sum, one) => sum + Number(/^Rss: +(\d+)/m.exec(one)?.[1]), 0) / 1024;
}
