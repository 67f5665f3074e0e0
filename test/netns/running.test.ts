// Do running containers get and lose networks, whichever runtime attached them first, and never half of one?

import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { withoutOurs } from '../helpers/journal.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(180_000));

const DONE = { exitCode: 0, stderr: '' };

/** A network of its own bridge and subnet, in the lab's directory of configurations. */
function writeNetwork(lab: Lab, name: string, subnet: number, ...more: Row[]): void {
  const ipam = { type: 'host-local', subnet: `10.${subnet}.0.0/16`, dataDir: `${lab.tmp}/leases` };
  const isDefaultGateway = subnet === 88 || subnet === 97;
  const bridge = { type: 'bridge', bridge: `br${subnet}`, isGateway: true, isDefaultGateway, ipam };
  fs.mkdirSync(`${lab.tmp}/conf`, { recursive: true });
  fs.writeFileSync(
    `${lab.tmp}/conf/${name}.conflist`,
    JSON.stringify({ cniVersion: '1.1.0', name, plugins: [bridge, ...more] }),
  );
}

async function withPod(body: (lab: Lab, pod: Container) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const pod = await lab.container();
    writeNetwork(lab, 'podnet', 88);
    writeNetwork(lab, 'storage', 99);
    writeNetwork(lab, 'backup', 98);
    writeNetwork(lab, 'uplink', 97);
    const list = JSON.parse(fs.readFileSync(`${lab.tmp}/conf/podnet.conflist`, 'utf8'));
    const names = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;IP=10.88.0.7';
    await writeChain(lab, list).add(pod, { args: ['--args', names] });
    await body(lab, pod);
  });
}

function argvOf(lab: Lab, args: readonly string[]): string[] {
  const conf = args[0] === 'attach' ? ['--conf-dir', `${lab.tmp}/conf`] : [];
  const own = ['attach', 'detach', 'repair'].includes(args[0] ?? '') ? ['--bin-dir', BIN_DIR, ...conf] : [];
  return [CATENA, ...args, ...own];
}

function catena(lab: Lab, ...args: string[]): Promise<Finished> {
  return lab.run(lab.host, argvOf(lab, args), { env: directories(lab.tmp), timeoutMs: 60_000 });
}

async function namesIn(lab: Lab, pod: Container): Promise<string[]> {
  const links = await lab.ip(pod, 'link', 'show');
  return links.map(({ ifname }) => ifname).sort();
}

function leases(lab: Lab): string[] {
  const all = fs.readdirSync(`${lab.tmp}/leases`, { recursive: true, encoding: 'utf8' });
  return all.filter(name => /\/10\./.test(name)).sort();
}

describeRoot('networks of running containers', () => {
  test('attach and detach; the first interface and its default route stay', async () => {
    await withPod(async (lab, pod) => {
      const routes = await lab.ip(pod, 'route', 'show', 'default');
      const before = await namesIn(lab, pod);
      const attached = await catena(lab, 'attach', 'shop/web', 'storage');
      expect(attached).toMatchObject(DONE);
      const result = JSON.parse(attached.stdout);
      expect(result.ips).toMatchObject([{ address: '10.99.0.2/16' }]);
      expect(result.interfaces.at(-1)).toMatchObject({ name: 'net1', sandbox: pod.path });
      const [{ addr_info: shown }] = (await lab.ip(pod, '-4', 'addr', 'show', 'net1')) as [Row];
      expect(shown).toMatchObject([{ local: '10.99.0.2', prefixlen: 16 }]);
      expect(await ping(lab, pod, '10.99.0.1')).toBe(true);
      expect(await lab.ip(pod, 'route', 'show', 'default')).toEqual(routes);
      // Its own address was for the first network only; the pod's name is for all.
      const cached = JSON.parse(fs.readFileSync(`${lab.tmp}/cni/results/storage-${pod.id}-net1`, 'utf8'));
      expect(cached.cniArgs).toEqual([
        ['IgnoreUnknown', '1'],
        ['K8S_POD_NAMESPACE', 'shop'],
        ['K8S_POD_NAME', 'web'],
      ]);

      // Two at once choose two names.
      const both = await Promise.all(
        ['storage', 'backup'].map(network => catena(lab, 'attach', pod.path, network)),
      );
      for (const one of both) expect(one).toMatchObject(DONE);
      expect(await namesIn(lab, pod)).toEqual([...before, 'net1', 'net2', 'net3']);

      const refused = async (...args: string[]) => {
        const { exitCode, stderr } = await catena(lab, ...args);
        expect(exitCode).toBe(1);
        return stderr;
      };
      expect(await refused('detach', pod.id, 'storage')).toContain('name the interface');
      expect(await refused('detach', pod.id, 'net9')).toContain('it has');
      expect(await refused('detach', pod.id, 'eth0')).toContain("the container's first");
      expect(await refused('attach', pod.id, 'backup', '--ifname', 'net1')).toContain('already has');
      expect(await refused('attach', 'nobody', 'backup')).toContain('no attachment of it is on record');

      expect(await refused('attach', pod.id, 'uplink')).toContain('second default route');
      expect(await namesIn(lab, pod)).toEqual([...before, 'net1', 'net2', 'net3']);
      expect(await lab.ip(pod, 'route', 'show', 'default')).toEqual(routes);
      const allowed = await catena(lab, 'attach', pod.id, 'uplink', '--default-route');
      expect(allowed).toMatchObject(DONE);

      for (const ifname of ['net4', 'net1', 'net2', 'net3'])
        expect(await catena(lab, 'detach', pod.id, ifname)).toMatchObject({ ...DONE, stdout: '' });
      expect(await namesIn(lab, pod)).toEqual(before);
      expect(leases(lab)).toEqual(['podnet/10.88.0.7']);
      expect(fs.readdirSync(`${lab.tmp}/cni/results`)).toEqual([`podnet-${pod.id}-eth0`]);
      expect(await catena(lab, 'log')).toMatchObject(DONE);
    });
  });

  test('a container of another runtime, known only from its cached result', async () => {
    await withPod(async (lab, pod) => {
      withoutOurs(`${lab.tmp}/cni/results/podnet-${pod.id}-eth0`);
      expect(await catena(lab, 'attach', pod.id.slice(0, 12), 'storage', '--ifname', 'data0')).toMatchObject(
        DONE,
      );
      expect(await namesIn(lab, pod)).toContain('data0');
      const kept = await catena(lab, 'detach', pod.id, 'podnet');
      expect([kept.exitCode, kept.stderr]).toEqual([
        1,
        expect.stringContaining('made it, reports its address'),
      ]);
      expect(await catena(lab, 'detach', pod.id, 'podnet', '--force')).toMatchObject(DONE);
      expect(await namesIn(lab, pod)).not.toContain('eth0');
      expect(leases(lab)).toEqual(['storage/10.99.0.2']);
      // The rest is on record, by which its namespace is known.
      expect(await catena(lab, 'attach', pod.id, 'backup')).toMatchObject(DONE);
    });
  });

  test('a path that leads elsewhere now is not entered', async () => {
    await withPod(async (lab, pod) => {
      const later = await lab.container();
      await lab.run(lab.host, ['umount', pod.path]);
      await lab.run(lab.host, ['mount', '--bind', later.path, pod.path]);
      // After a reboot, another container gets the path, the name of the interface and the address.
      await lab.ip(later, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'other');
      await lab.ip(later, 'address', 'add', '10.88.0.7/16', 'dev', 'eth0');
      for (const known of ['record', 'cached result']) {
        const { exitCode, stderr } = await catena(lab, 'attach', pod.id, 'storage');
        expect([exitCode, stderr]).toEqual([1, expect.stringContaining('is no longer that of its ADD')]);
        if (known === 'record') fs.rmSync(`${lab.tmp}/state`, { recursive: true });
      }
      expect(await namesIn(lab, later)).toEqual(['eth0', 'lo', 'other']);
      expect(leases(lab)).toEqual(['podnet/10.88.0.7']);
    });
  });

  test('a second default route of IPv6 is refused, which the kernel merges with the first', async () => {
    await withPod(async (lab, pod) => {
      for (const [name, subnet] of [
        ['six', 'fd96::/64'],
        ['more', 'fd95::/64'],
      ] as const) {
        const ipam = { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` };
        const bridge = { type: 'bridge', bridge: `br-${name}`, isDefaultGateway: true, ipam };
        fs.writeFileSync(
          `${lab.tmp}/conf/${name}.conflist`,
          JSON.stringify({ cniVersion: '1.1.0', name, plugins: [bridge] }),
        );
      }
      expect(await catena(lab, 'attach', pod.id, 'six')).toMatchObject(DONE);
      const routes = await lab.ip(pod, '-6', 'route', 'show', 'default');
      expect(routes).toMatchObject([{ gateway: 'fd96::1', dev: 'net1' }]);
      const refused = await catena(lab, 'attach', pod.id, 'more');
      expect([refused.exitCode, refused.stderr]).toEqual([
        1,
        expect.stringContaining('it adds a second default route (::/0)'),
      ]);
      expect(await namesIn(lab, pod)).toEqual(['eth0', 'lo', 'net1']);
      expect(await lab.ip(pod, '-6', 'route', 'show', 'default')).toEqual(routes);
      expect(await catena(lab, 'attach', pod.id, 'more', '--default-route')).toMatchObject(DONE);
      const shown = await lab.run(lab.host, [CATENA, 'ls', '--json'], { env: directories(lab.tmp) });
      const { attachments } = JSON.parse(shown.stdout);
      const routed = attachments.flatMap((one: Row) =>
        one.routes.flatMap((route: Row) =>
          route.destination === '::/0' ? [[one.network, route.gateway]] : [],
        ),
      );
      expect(routed.sort()).toEqual([
        ['more', 'fd95::1'],
        ['six', 'fd96::1'],
      ]);
    });
  });

  test('what fails or is killed leaves nothing, or all of it', async () => {
    await withPod(async (lab, pod) => {
      const before = await namesIn(lab, pod);
      writeNetwork(lab, 'storage', 99, { type: 'tuning', sysctl: { 'net.core.no_such_key': '1' } });
      const failed = await catena(lab, 'attach', pod.id, 'storage');
      expect([failed.exitCode, failed.stderr]).toEqual([1, expect.stringContaining('no_such_key')]);
      expect(await namesIn(lab, pod)).toEqual(before);
      expect(leases(lab)).toEqual(['podnet/10.88.0.7']);

      for (const verb of ['attach', 'detach']) {
        for (const ms of [60, 120, 180, 240]) {
          if (verb === 'detach' && !(await namesIn(lab, pod)).includes('net1'))
            expect(await catena(lab, 'attach', pod.id, 'backup')).toMatchObject(DONE);
          const child = lab.start(lab.host, [
            'env',
            ...Object.entries(directories(lab.tmp)).map(pair => pair.join('=')),
            ...argvOf(lab, [verb, pod.id, verb === 'attach' ? 'backup' : 'net1']),
          ]);
          await Bun.sleep(ms);
          child.kill('SIGKILL');
          await child.exited;
          expect((await catena(lab, 'repair')).exitCode).toBe(0);
          const isThere = (await namesIn(lab, pod)).includes('net1');
          expect(leases(lab)).toEqual(
            isThere ? [expect.stringMatching(/^backup/), 'podnet/10.88.0.7'] : ['podnet/10.88.0.7'],
          );
          if (verb === 'attach' && isThere)
            expect(await catena(lab, 'detach', pod.id, 'net1')).toMatchObject(DONE);
        }
      }
    });
  });
});
