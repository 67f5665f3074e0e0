// Does a daemon change anything but the time it takes, and is it missed when it is gone?

import { expect, test } from 'bun:test';
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import net from 'node:net';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { holdLeases } from '../helpers/held-leases.ts';
import { type Container, directories, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';
import { bytesOf, requestHere, sendToWire } from '../helpers/wire.ts';

const CAP = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };

describeRoot('a daemon', () => {
  const makeLab = useLabs();

  test('runs add, check and del as the command does, and leaves nothing', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab, { rate: 80_000_000 }));
    const container = await lab.container();
    // Forwarding and the fixed tables stay after the first attachment.
    const cold = await chain.add(container, { cap: CAP });
    expect((await chain.run('del', container)).stderr).toBe('');
    const before = await lab.dump(lab.host);
    const daemon = await startDaemon(lab);
    const warm = await chain.add(container, { cap: CAP });
    expect(warm.ips.length).toBe(cold.ips.length);
    expect(warm.interfaces.length).toBe(cold.interfaces.length);
    expect(await ping(lab, container, '10.88.0.1')).toBe(true);
    expect(await chain.run('check', container)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await lab.dump(lab.host)).toEqual(before);
    expect(await chain.leases()).toEqual([]);
    expect(await (await daemon.fetch('/v1/state')).json()).toMatchObject({
      served: 3,
      running: 0,
      queued: 0,
    });
    expect(await daemon.stop()).toBe(0);
    expect(existsSync(daemon.socket)).toBe(false);
  });

  test('is asked by fronts alone: a build without a C compiler works beside it, and says so', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const daemon = await startDaemon(lab);
    const bin = `${lab.tmp}/bin`;
    mkdirSync(bin);
    copyFileSync(`${BIN_DIR}/catena-core`, `${bin}/catena`);
    for (const name of ['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning', 'catena-core'])
      linkSync(`${bin}/catena`, `${bin}/${name}`);
    const [container, another] = [await lab.container(), await lab.container()];
    const env = { ...directories(lab.tmp), PATH: process.env.PATH ?? '' };
    const catena = (...args: string[]) =>
      lab.run(lab.host, [`${bin}/catena`, ...args], { env, timeoutMs: 60_000 });
    const list = ['--file', `${lab.tmp}/podnet.conflist`, '--bin-dir', bin];
    const target = [container.path, '--container-id', container.id, ...list];
    expect(await catena('add', 'podnet', ...target)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await catena('del', 'podnet', ...target)).toMatchObject({ exitCode: 0, stderr: '' });
    const conf = { ...chain.list.plugins[0], name: 'podnet', cniVersion: '1.1.0' };
    const call = { conf, container: another, binDir: bin };
    const { result } = await lab.plugin('bridge', { ...call, command: 'ADD' });
    expect(result.ips.length).toBe(2);
    expect(await lab.plugin('bridge', { ...call, command: 'DEL' })).toMatchObject({ exitCode: 0 });
    const state = await (await daemon.fetch('/v1/state')).json();
    expect(state).toMatchObject({ served: 0, declined: {} });
    const installed = await catena('install', '--bin-dir', `${lab.tmp}/installed`, '--dry-run');
    expect(installed.stdout).toContain('this build has no front, since there was no C compiler');
    const examined = await catena('doctor', '--bin-dir', bin, '--json');
    expect(examined.stdout).toContain(
      'was built without a C compiler: it and the plugins beside it ask no daemon',
    );
    await daemon.stop();
  });

  test('reports failures with the message and the exit code of the command', async () => {
    const lab = await makeLab();
    const list = fullChain(lab);
    list.plugins[0].mtu = -1;
    const chain = writeChain(lab, list);
    const container = await lab.container();
    const cold = await chain.run('add', container, { args: ['--json'] });
    await startDaemon(lab);
    const warm = await chain.run('add', container, { args: ['--json'] });
    expect(warm.exitCode).toBe(cold.exitCode);
    expect(JSON.parse(warm.stderr)).toMatchObject({
      code: JSON.parse(cold.stderr).code,
      msg: JSON.parse(cold.stderr).msg,
    });
    expect((await chain.run('add', container, { args: ['--nonsense'] })).exitCode).toBe(2);
  });

  test('takes over HTTP, as JSON, what clients send, and answers with what a process would leave behind', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const container = await lab.container();
    const daemon = await startDaemon(lab);
    const post = async (body: object) => {
      const response = await daemon.fetch('/v1/call', { method: 'POST', body: JSON.stringify(body) });
      return { status: response.status, body: (await response.json()) as Row };
    };
    const from = ['--file', `${chain.name}.conflist`, '--bin-dir', BIN_DIR, '--json'];
    const command = (verb: string, ...args: string[]) =>
      post({ args: [verb, chain.name, ...args, ...from], cwd: lab.tmp });
    const attachment = [container.path, '--container-id', container.id, '--cap', JSON.stringify(CAP)];
    const added = await command('add', ...attachment);
    expect(added).toMatchObject({ status: 200, body: { exitCode: 0, stderr: '' } });
    expect(JSON.parse(added.body.stdout)).toMatchObject({ cniVersion: '1.1.0' });
    const done = { status: 200, body: { exitCode: 0, stdout: '', stderr: '' } };
    expect(await command('check', ...attachment)).toEqual(done);
    const attachments = (await (await daemon.fetch('/v1/attachments')).json()) as Row;
    expect(attachments.attachments).toMatchObject([{ containerId: container.id, ifname: 'eth0' }]);
    const again = await command('add', ...attachment);
    expect(again.body.exitCode).toBe(1);
    expect(JSON.parse(again.body.stderr)).toMatchObject({ code: 4 });
    const env = { CNI_COMMAND: 'STATUS', CNI_PATH: BIN_DIR };
    const stdin = JSON.stringify({ ...chain.list.plugins[0], name: chain.name, cniVersion: '1.1.0' });
    expect(await post({ plugin: 'bridge', env, stdin })).toEqual(done);
    expect(await command('gc', '--all')).toMatchObject({ status: 200, body: { exitCode: 0 } });
    expect(await command('del', ...attachment)).toEqual(done);
    for (const wrong of [{ argz: [] }, { args: ['daemon'] }, { args: ['add'], cwd: 'tmp' }])
      expect(await post(wrong)).toMatchObject({ status: 400, body: { code: 6 } });
    expect(await chain.leases()).toEqual([]);
  });

  test('attaches many containers at once, and detaches them together', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab, { rate: 80_000_000 }));
    await chain.add(await lab.container());
    await startDaemon(lab);
    const containers: Container[] = [];
    for (let i = 0; i < 24; i++) containers.push(await lab.container());
    const results = await Promise.all(containers.map(one => chain.add(one)));
    const addresses = new Set(results.flatMap(({ ips }) => ips.map((ip: { address: string }) => ip.address)));
    expect(addresses.size).toBe(2 * containers.length);
    const deleted = await Promise.all(containers.map(one => chain.run('del', one)));
    expect(deleted.map(({ exitCode, stderr }) => `${exitCode}${stderr}`)).toEqual(containers.map(() => '0'));
    expect(await chain.leases()).toHaveLength(2);
    expect((await lab.ip(lab.host, 'link', 'show', 'type', 'ifb')).length).toBe(1);
  });

  test('is optional: without it, and in another namespace, the command does the work', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const [first, second] = [await lab.container(), await lab.container()];
    const daemon = await startDaemon(lab);
    await chain.add(first);
    process.kill(daemon.pid, 'SIGKILL');
    expect(existsSync(daemon.socket)).toBe(true);
    await chain.add(second);
    expect(await chain.run('del', first)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await chain.run('del', second)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await chain.leases()).toEqual([]);
  });

  test('that is killed in the middle of an ADD only delays its client', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const daemon = await startDaemon(lab);
    const adding = chain.add(container);
    await waiter('--worker');
    process.kill(daemon.pid, 'SIGKILL');
    release();
    expect((await adding).ips).toHaveLength(2);
    expect(await chain.leases()).toHaveLength(2);
    expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toHaveLength(1);
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await chain.leases()).toEqual([]);
  });

  test('finishes its requests when it is stopped, and hands over to its successor', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const daemon = await startDaemon(lab);
    const adding = chain.add(container);
    await waiter('--worker');
    const stopped = daemon.stop();
    await until(async () => !existsSync(daemon.socket));
    const successor = await startDaemon(lab);
    release();
    expect((await adding).ips).toHaveLength(2);
    expect(await stopped).toBe(0);
    expect(existsSync(successor.socket)).toBe(true);
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
  });

  test('survives clients that send nothing, send garbage, or never stop sending', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const container = await lab.container();
    const daemon = await startDaemon(lab);
    const silent = net.connect(daemon.socket);
    const garbage = net.connect(daemon.socket);
    garbage.write('\0\xff'.repeat(1000));
    const large = await daemon.fetch('/v1/call', { method: 'POST', body: 'x'.repeat(40 * 1024 * 1024) }).then(
      ({ status }) => status,
      () => 0,
    );
    expect([0, 400, 413, 500]).toContain(large);
    expect((await daemon.fetch('/v1/call', { method: 'POST', body: '{"a":' })).status).toBe(400);
    const waiting = [new Uint8Array(), bytesOf(await requestHere()).subarray(0, -1)].map(bytes =>
      sendToWire(daemon.socket, bytes, 1_000),
    );
    const refused = [{ kind: 'declined' as const, begun: false }];
    expect(await sendToWire(daemon.socket, new Uint8Array(1 << 20))).toEqual(refused);
    const command = bytesOf(await requestHere({ args: ['daemon'] }));
    expect(await sendToWire(daemon.socket, command)).toEqual(refused);
    expect(await Promise.all(waiting)).toEqual([[], []]);
    expect((await daemon.fetch('/nowhere')).status).toBe(404);
    expect((await daemon.fetch('/readyz')).status).toBe(200);
    await chain.add(container);
    for (const socket of [silent, garbage]) socket.destroy();
  });

  test('replaces a killed worker; the request that it served is undone, and can be repeated', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    await startDaemon(lab, '--workers', '1');
    const adding = chain.run('add', container, { args: ['--json'] });
    process.kill(await waiter('--worker'), 'SIGKILL');
    release();
    const { exitCode, stderr } = await adding;
    expect(exitCode).toBe(1);
    expect(JSON.parse(stderr)).toMatchObject({ code: 11, msg: expect.stringContaining('SIGKILL') });
    expect(await chain.leases()).toEqual([]);
    await chain.add(container);
  });

  test('ends a hanging worker at the deadline of the command; undo has a deadline of its own, and other requests continue', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    // Its addresses are not those of the first network: ADD refuses the address of a living pod.
    const ranges = [[{ subnet: '10.89.0.0/24' }], [{ subnet: 'fd89::/64' }]];
    const [bridge, ...chained] = fullChain(lab).plugins;
    const ipam = { ...bridge.ipam, ranges };
    const plugins = [{ ...bridge, bridge: 'br1', ipam }, ...chained];
    const other = writeChain(lab, { ...fullChain(lab), name: 'other', plugins });
    const settings = `${lab.tmp}/daemon.json`;
    writeFileSync(settings, JSON.stringify({ timeouts: { add: 2, del: 30 }, workers: 2 }));
    await startDaemon(lab, '--config', settings);
    const adding = chain.run('add', container, { args: ['--json'] });
    const hanging = await waiter('--worker');
    await other.add(await lab.container());
    // The next process that wants the lock is the undo, which gets more time than the ADD had.
    await until(async () => ![hanging, 0].includes(await waiter('--worker')));
    await Bun.sleep(2_500);
    release();
    const { exitCode, stderr } = await adding;
    expect(exitCode).toBe(1);
    expect(JSON.parse(stderr)).toMatchObject({
      code: 11,
      msg: expect.stringContaining('did not finish within 2 s'),
    });
    expect(stderr).not.toContain('undoing it failed');
    expect((await chain.leases()).filter(lease => lease.includes('/podnet/'))).toEqual([]);
    await chain.add(container);
  });

  test('applies changed settings to logs, traces and limits, and keeps the old ones when the new ones are invalid', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const container = await lab.container();
    const [settings, first, second] = ['daemon.json', 'first.log', 'second.log'].map(
      name => `${lab.tmp}/${name}`,
    );
    const change = (to: object): void => {
      writeFileSync(`${settings}.new`, JSON.stringify(to));
      renameSync(`${settings}.new`, settings ?? '');
    };
    change({ log: `file:${first}` });
    const daemon = await startDaemon(lab, '--config', settings ?? '', '--log', 'none');
    await chain.add(container);
    expect((await daemon.fetch('/v1/traces')).status).toBe(200);
    change({ log: `file:${second}`, traces: 0 });
    await until(async () => (await daemon.fetch('/v1/traces')).status === 404);
    change({ log: 'printer', traces: 5 });
    await chain.run('check', container);
    await chain.run('del', container);
    const verbs = (file = '') => readFileSync(file, 'utf8').match(/"request finished"/g)?.length;
    await until(async () => existsSync(second ?? '') && verbs(second) === 2);
    expect(verbs(first)).toBe(1);
    expect((await daemon.fetch('/v1/traces')).status).toBe(404);
  });
});
