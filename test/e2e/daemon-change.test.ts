// Are changes of running containers served by the daemon, and seen in traces, metrics and the log?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { changeableChain, onJournal, rates, set, settingsOf } from '../helpers/change.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { holdLock } from '../helpers/held-leases.ts';
import { directories, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresLinkKind } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const DONE = { exitCode: 0, stderr: '' };
const PORTS = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];

describeRoot(
  'a daemon',
  () => {
    test('serves set, attach and detach', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const chain = changeableChain(lab);
        await chain.add(container, { cap: { bandwidth: rates(80) } });
        const daemon = await startDaemon(lab, '--metrics', '127.0.0.1:9464');
        expect(await set(lab, container, { cap: { bandwidth: rates(16) } })).toMatchObject(DONE);
        expect(await settingsOf(lab, container)).toMatchObject({ rates: [16, 16] });

        const post = async (...args: string[]) => {
          const body = JSON.stringify({ args: [...args, '--bin-dir', BIN_DIR, '--json'] });
          return (await (await daemon.fetch('/v1/call', { method: 'POST', body })).json()) as Row;
        };
        const ports = JSON.stringify({ portMappings: PORTS });
        const changed = await post('set', container.id, 'podnet', '--cap', ports);
        expect(changed).toMatchObject(DONE);
        expect(JSON.parse(changed.stdout)).toMatchObject({ cniVersion: '1.1.0' });
        expect(await settingsOf(lab, container)).toMatchObject({ ports: [8080], rates: [16, 16] });
        const refused = await post('set', container.id, 'podnet', '--conf', '{"bridge":{"mtu":1400}}');
        expect(refused.exitCode).toBe(1);
        expect(JSON.parse(refused.stderr)).toMatchObject({ code: 7 });

        const from = ['--file', `${lab.tmp}/podnet.conflist`, '--ifname', 'net7', '--default-route'];
        expect(await post('attach', container.id, 'podnet', ...from)).toMatchObject(DONE);
        expect(await lab.ip(container, 'link', 'show', 'net7')).toMatchObject([{ operstate: 'UP' }]);
        expect(await post('detach', container.id, 'net7')).toMatchObject(DONE);
        const links = await lab.ip(container, 'link', 'show');
        expect(links.map(({ ifname }) => ifname)).toEqual(['lo', 'eth0']);

        const page = await lab.run(lab.host, ['curl', '--silent', 'http://127.0.0.1:9464/metrics']);
        const counted = (verb: string, code: number) =>
          `catena_requests_total{verb="${verb}",network="podnet",code="${code}"}`;
        const lines = page.stdout.split('\n');
        expect(lines).toContain(`${counted('SET', 0)} 2`);
        expect(lines).toContain(`${counted('SET', 7)} 1`);
        expect(lines).toContain(`${counted('ADD', 0)} 1`);
        expect(lines).toContain(`${counted('DEL', 0)} 1`);
        const { items } = (await (await daemon.fetch('/v1/traces')).json()) as { items: Row[] };
        const [change] = items.filter(({ verb }) => verb === 'SET');
        expect(change).toMatchObject({
          network: 'podnet',
          containerId: container.id,
          ifname: 'eth0',
          code: 0,
        });
        expect(await daemon.stop()).toBe(0);

        // Without a daemon, too, and the history has all of it.
        expect(await set(lab, container, { cap: { bandwidth: null } }, '--trace')).toMatchObject(DONE);
        const log = async () => (await onLog()).map(({ what, by }) => `${what} ${by}`);
        const onLog = async (): Promise<Row[]> => {
          const argv = [CATENA, 'log', '--json', '--container', container.id];
          const { stdout } = await lab.run(lab.host, argv, { env: directories(lab.tmp) });
          return JSON.parse(stdout).items;
        };
        const expected = [
          ...['ADD command', 'SET daemon', 'SET daemon', 'SET daemon'],
          ...['ADD daemon', 'DEL daemon', 'SET command'],
        ];
        await until(async () => (await log()).length >= expected.length);
        expect(await log()).toEqual(expected);
        const { stdout } = await lab.run(lab.host, [CATENA, 'log', '--requests'], {
          env: directories(lab.tmp),
        });
        expect(stdout).toContain('SET');
        expect((await onJournal(lab, 'repair')).exitCode).toBe(0);
      });
    });
  },
  requiresLinkKind('ifb'),
);

describeRoot('an attach', () => {
  test('leaves nothing if its daemon is killed and its container is gone when the command takes over', async () => {
    await withHost(async lab => {
      const [container, later] = [await lab.container(), await lab.container()];
      const { plugins, ...list } = fullChain(lab);
      const network = (name: string, bridge: string) => ({
        ...list,
        name,
        plugins: [{ ...plugins[0], bridge }],
      });
      await writeChain(lab, network('podnet', 'br0')).add(container);
      fs.mkdirSync(`${lab.tmp}/conf`);
      const storage = JSON.stringify(network('storage', 'br1')).replaceAll('10.88.', '10.99.');
      fs.writeFileSync(`${lab.tmp}/conf/storage.conflist`, storage.replaceAll('fd88:', 'fd99:'));
      const leases = `${lab.tmp}/leases/storage`;
      const { waiter, release } = await holdLock(lab, leases);
      const daemon = await startDaemon(lab);
      const options = ['--bin-dir', BIN_DIR, '--conf-dir', `${lab.tmp}/conf`];
      const attaching = lab.run(lab.host, [CATENA, 'attach', container.id, 'storage', ...options], {
        env: directories(lab.tmp),
        timeoutMs: 60_000,
      });
      await waiter('--worker');
      await lab.run(lab.host, ['umount', container.path]);
      await lab.run(lab.host, ['mount', '--bind', later.path, container.path]);
      process.kill(daemon.pid, 'SIGKILL');
      release();
      const { exitCode, stderr } = await attaching;
      expect([exitCode, stderr]).toEqual([1, expect.stringContaining('is no longer that of its ADD')]);
      expect(fs.readdirSync(leases).filter(name => /^(10\.|fd99)/.test(name))).toEqual([]);
      // Those of the first network.
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'bridge')).toMatchObject([{ ifname: 'br0' }]);
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toMatchObject([{ master: 'br0' }]);
      const records = fs.readdirSync(`${lab.tmp}/state`, { recursive: true, encoding: 'utf8' });
      expect(records.filter(name => name.includes('storage/'))).toEqual([]);
    });
  });
});
