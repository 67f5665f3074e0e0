// Does containerd run containers and pods on our executables, and is nothing left of them, however they ended?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { eventually, requiresContainerd, withContainerd } from '../helpers/containerd.ts';
import { deadline } from '../helpers/deadline.ts';
import type { Machine } from '../helpers/machine.ts';
import type { Namespace, Row } from '../helpers/netns.ts';
import { bridged, PODS } from '../helpers/pod-networks.ts';
import { findReachable, findUnreachable, PUBLISHED } from '../helpers/published.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

// Many processes each, which a busy machine takes its time for.
setDefaultTimeout(deadline(180_000));

/** A network that pods may ask for, with an address and a hardware address of their choice. */
const STORAGE = {
  cniVersion: '1.0.0',
  name: 'storage',
  plugins: [
    {
      type: 'bridge',
      bridge: 'storage0',
      isGateway: true,
      capabilities: { ips: true, mac: true },
      ipam: { type: 'host-local', subnet: '10.99.0.0/24' },
    },
  ],
};

/** One plugin, which has the pods' network and finds the others. */
const DELEGATING = {
  cniVersion: '1.0.0',
  name: 'catena',
  plugins: [
    {
      type: 'catena',
      capabilities: { portMappings: true, bandwidth: true, 'io.kubernetes.cri.pod-annotations': true },
      delegates: [PODS],
    },
  ],
};

describeRoot(
  'ctr run --cni',
  () => {
    test.each([
      ['killed', false],
      ['killed, after containerd was restarted', true],
    ])('a container %s leaves nothing', async (_how, restart) => {
      await withContainerd([PODS], async ({ machine, containerd, outside }) => {
        const before = await machine.traces();
        const run = containerd.startContainer('web');
        const pid = await containerd.pidOf('web');
        const container = machine.netnsOf(pid);
        await untilAttached(machine, pid);
        for (const address of ['10.22.0.1', 'fd00:22::1', outside.address.v4, outside.address.v6]) {
          expect([address, await ping(machine.lab, container, address)]).toEqual([address, true]);
        }
        expect(await machine.lab.sysctl(container, 'net/core/somaxconn')).toBe('321');
        if (restart) {
          await containerd.kill();
          await containerd.start();
        }
        await machine.ok(['kill', '-KILL', String(pid)]);
        await run.exited;
        // Who started it may have lost sight of it, and has then taken away no more than the network.
        if (restart) await containerd.ctr('task', 'rm', '--force', 'web').catch(String);
        if (restart) await containerd.ctr('container', 'rm', 'web').catch(String);
        expect(await machine.settled(before)).toEqual(before);
      });
    });
  },
  requires('ip', 'nft'),
  requiresContainerd(),
);

describeRoot(
  'pods of containerd',
  () => {
    test('have networks, ports and rates, and leave nothing', async () => {
      await withContainerd([PODS], async ({ machine, containerd, outside }) => {
        const { lab } = machine;
        const before = await machine.traces();
        const cri = containerd.cri();
        expect(await cri.networkStatus()).toEqual({ ready: true, message: '', networks: ['pods'] });
        const rates = { 'kubernetes.io/ingress-bandwidth': '20M', 'kubernetes.io/egress-bandwidth': '10M' };
        const web = await cri.runPod({ name: 'web', annotations: rates, ports: PUBLISHED });
        const other = await cri.runPod({ name: 'other' });
        expect(web.ips).toEqual(['10.22.0.2', 'fd00:22::2']);
        const container = machine.netnsOf(web.pid);
        expect((await lab.ip(container, 'addr', 'show', 'lo'))[0]?.operstate).toBe('UNKNOWN');
        const from = { 'another pod': machine.netnsOf(other.pid) };
        const families = ['v4', 'v6'] as const;
        expect(await findUnreachable(lab, { container, outside, from, families })).toEqual([]);
        const shaped = (await lab.tc(lab.host, 'qdisc', 'show')).filter(({ kind }) => kind === 'tbf');
        expect(shaped.map(({ options }) => options.rate).sort()).toEqual([1_250_000, 2_500_000]);
        for (const { id } of [web, other, web]) await cri.stopPod(id);
        for (const { id } of [web, other, web]) await cri.removePod(id);
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
        expect(await findReachable(lab, outside)).toEqual([]);
      });
    });

    test('whose rules were flushed are reported by doctor, restored by repair, and no longer reported once removed', async () => {
      await withContainerd([PODS], async ({ machine, containerd, outside }) => {
        const before = await machine.traces();
        const catena = async (...args: string[]) => {
          const { exitCode, stdout } = await machine.run(['/opt/cni/bin/catena', ...args, '--json']);
          return { exitCode, ...JSON.parse(stdout) };
        };
        const doctor = async () => {
          const { findings } = await catena('doctor');
          return findings.filter(({ id }: Row) => id === 'attachments');
        };
        const cri = containerd.cri();
        const web = await cri.runPod({ name: 'web', ports: PUBLISHED });
        const container = machine.netnsOf(web.pid);
        expect(await doctor()).toMatchObject([{ severity: 'ok' }]);
        await machine.ok(['nft', 'flush', 'ruleset']);
        expect(await findReachable(machine.lab, outside)).toEqual([]);
        expect(await doctor()).toMatchObject([{ severity: 'error', mend: 'catena repair pods' }]);
        expect(await catena('repair', 'pods')).toMatchObject({
          exitCode: 0,
          attachments: [{ state: 'mended' }],
        });
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await cri.stopPod(web.id);
        await cri.removePod(web.id);
        cri.close();
        expect(await catena('repair')).toMatchObject({ recovered: [], attachments: [] });
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('leave nothing after they are killed and containerd restarts', async () => {
      await withContainerd([PODS], async ({ machine, containerd, outside }) => {
        const before = await machine.traces();
        const first = containerd.cri();
        const web = await first.runPod({ name: 'web', ports: PUBLISHED });
        const other = await first.runPod({ name: 'other' });
        first.close();
        await containerd.kill();
        await machine.ok(['kill', '-KILL', String(web.pid)]);
        await containerd.start();
        const cri = containerd.cri();
        await machine.ok(['kill', '-KILL', String(other.pid)]);
        for (const { id } of [web, other]) await cri.stopPod(id);
        for (const { id } of [web, other]) await cri.removePod(id);
        expect(await machine.settled(before)).toEqual(before);

        // Their ports and names are free again.
        const again = await cri.runPod({ name: 'web', ports: PUBLISHED });
        const container = machine.netnsOf(again.pid);
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await cri.removePod(again.id);
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('from before a reboot are stopped and removed, and leave nothing', async () => {
      await withContainerd([PODS], async ({ machine, containerd, outside }) => {
        const before = await machine.traces();
        const first = containerd.cri();
        const [web, other] = [
          await first.runPod({ name: 'web', ports: PUBLISHED }),
          await first.runPod({ name: 'other' }),
        ];
        first.close();
        await machine.reboot();
        await containerd.start();
        // A new pod comes first: what is left of the old ones may not be in its way.
        const cri = containerd.cri();
        const again = await cri.runPod({ name: 'again', ports: PUBLISHED });
        for (const { id } of [web, other]) await cri.stopPod(id);
        for (const { id } of [web, other]) await cri.removePod(id);
        const container = machine.netnsOf(again.pid);
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await cri.removePod(again.id);
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('that want a port of another pod are refused, with its name, and leave nothing', async () => {
      await withContainerd([PODS], async ({ machine, containerd }) => {
        const before = await machine.traces();
        const cri = containerd.cri();
        const web = await cri.runPod({ name: 'web', ports: PUBLISHED });
        // Names only: the kernel keeps changing the addresses of a new device for a while.
        const traces = async () => {
          const { kernel, elements, files } = await machine.traces();
          return { links: kernel.links.map(({ ifname }) => ifname), elements, files };
        };
        const running = await traces();
        const refused = await cri.runPod({ name: 'other', ports: PUBLISHED }).catch(String);
        expect(refused).toContain(`container "${web.id.slice(0, 12)}" of network "pods" holds 8080/tcp`);
        expect(await traces()).toEqual(running);
        await cri.removePod(web.id);
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('get two networks attached concurrently, with the ports mapped by one of them', async () => {
      const second = {
        ...PODS,
        name: 'second',
        plugins: [bridged('second', 23), ...PODS.plugins.slice(1, 2)],
      };
      await withContainerd([PODS, second], async ({ machine, containerd, outside }) => {
        const before = await machine.traces();
        const cri = containerd.cri();
        const web = await cri.runPod({ name: 'web', ports: PUBLISHED });
        const container = machine.netnsOf(web.pid);
        expect((await linksOf(machine, container)).sort()).toEqual(['eth0', 'eth1', 'lo']);
        // A server of UDP that does not mind addresses answers by the later network, whose default route comes first.
        const ports = PUBLISHED.filter(({ protocol }) => protocol === 'tcp');
        expect(await findUnreachable(machine.lab, { container, outside, ports })).toEqual([]);
        await cri.stopPod(web.id);
        await cri.removePod(web.id);
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
      });
    });
  },
  requires('ip', 'nft', 'tc'),
  requiresContainerd(),
);

describeRoot(
  'pods of containerd whose whole networking is Catena’s',
  () => {
    test.each([
      ['short', 'storage@st0'],
      [
        'JSON',
        JSON.stringify([
          { name: 'storage', interface: 'st0', ips: ['10.99.0.77/24'], mac: '02:00:00:00:99:77' },
        ]),
      ],
    ])('get the networks named in the %s form of their annotation', async (form, networks) => {
      await withContainerd([DELEGATING], async ({ machine, containerd, outside }) => {
        const { lab } = machine;
        machine.write('/etc/cni/catena/net.d/storage.conflist', JSON.stringify(STORAGE));
        const before = await machine.traces();
        const cri = containerd.cri();
        expect(await cri.networkStatus()).toEqual({ ready: true, message: '', networks: ['catena'] });
        const annotations = { 'k8s.v1.cni.cncf.io/networks': networks };
        const web = await cri.runPod({ name: 'web', annotations, ports: PUBLISHED });
        const peer = await cri.runPod({
          name: 'peer',
          annotations: { 'k8s.v1.cni.cncf.io/networks': 'storage' },
        });
        const plain = await cri.runPod({ name: 'plain' });
        const [container, other] = [machine.netnsOf(web.pid), machine.netnsOf(peer.pid)];
        expect(await linksOf(machine, container)).toEqual(['lo', 'eth0', 'st0']);
        expect(await linksOf(machine, other)).toEqual(['lo', 'eth0', 'net1']);
        expect(await linksOf(machine, machine.netnsOf(plain.pid))).toEqual(['lo', 'eth0']);
        expect(web.ips).toEqual(['10.22.0.2', 'fd00:22::2']);
        expect(await findUnreachable(lab, { container, outside, families: ['v4', 'v6'] })).toEqual([]);

        const [st0] = await lab.ip(container, 'addr', 'show', 'st0');
        const storage = st0?.addr_info.find(({ family }: Row) => family === 'inet').local;
        if (form === 'JSON') expect([storage, st0?.address]).toEqual(['10.99.0.77', '02:00:00:00:99:77']);
        expect(await ping(lab, other, storage, '-I', 'net1')).toBe(true);
        expect(await ping(lab, container, '10.99.0.1', '-I', 'st0')).toBe(true);

        for (const { id } of [web, peer, plain]) await cri.stopPod(id);
        for (const { id } of [web, peer, plain]) await cri.removePod(id);
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('leave nothing after they are killed, containerd restarts and a network is no longer configured', async () => {
      await withContainerd([DELEGATING], async ({ machine, containerd }) => {
        const definition = '/etc/cni/catena/net.d/storage.conflist';
        machine.write(definition, JSON.stringify(STORAGE));
        const before = await machine.traces();
        const first = containerd.cri();
        const annotations = { 'k8s.v1.cni.cncf.io/networks': 'storage' };
        const web = await first.runPod({ name: 'web', annotations, ports: PUBLISHED });
        first.close();
        await containerd.kill();
        await machine.ok(['kill', '-KILL', String(web.pid)]);
        fs.rmSync(machine.path(definition));
        await containerd.start();
        const cri = containerd.cri();
        await cri.stopPod(web.id);
        await cri.removePod(web.id);
        expect(await machine.settled(before)).toEqual(before);
        const refused = await cri.runPod({ name: 'web', annotations }).catch(String);
        expect(refused).toContain('storage');
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('are served by the daemon, and without it after it is killed', async () => {
      await withContainerd([DELEGATING], async ({ machine, containerd, outside }) => {
        machine.write('/etc/cni/catena/net.d/storage.conflist', JSON.stringify(STORAGE));
        const before = await machine.traces();
        const daemon = machine.start(['/opt/cni/bin/catena', 'daemon'], `${machine.lab.tmp}/daemon.log`);
        const ask = (path: string) =>
          fetch(`http://catena${path}`, { unix: machine.path('/run/catena/catena.sock') });
        await eventually('daemon', async () =>
          (await ask('/readyz').catch(() => undefined))?.ok ? true : undefined,
        );
        const cri = containerd.cri();
        const annotations = { 'k8s.v1.cni.cncf.io/networks': 'storage' };
        const web = await cri.runPod({ name: 'web', annotations, ports: PUBLISHED });
        const other = await cri.runPod({ name: 'other', annotations });
        const container = machine.netnsOf(web.pid);
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await cri.removePod(other.id);
        const logged = () => Bun.file(`${machine.lab.tmp}/daemon.log`).text();
        // Lines are written when no call is served, two seconds later at most: a daemon that is killed before has not written them.
        const isOfDel = (line: string) =>
          ['"DEL"', '"other"'].every(word => line.includes(word)) && !line.includes('cni-loopback');
        await eventually('line of the DEL', async () =>
          (await logged()).split('\n').some(isOfDel) ? true : undefined,
        );
        await machine.ok(['kill', '-KILL', ...machine.processes('/catena')]);
        await daemon.exited;
        await cri.removePod(web.id);
        cri.close();
        const log = (await logged()).split('\n');
        const requests = log
          .filter(line => line.includes('"request finished"'))
          .map(line => JSON.parse(line))
          // containerd calls loopback directly, which is ours as well.
          .filter(({ network }) => network !== 'cni-loopback');
        expect(requests.map(({ command, pod_name }) => [command, pod_name])).toEqual([
          ['ADD', 'web'],
          ['ADD', 'other'],
          ['DEL', 'other'],
        ]);
        expect(await machine.settled(before)).toEqual(before);
      });
    });
  },
  requires('ip', 'nft'),
  requiresContainerd(),
);

async function linksOf(machine: Machine, container: Namespace): Promise<string[]> {
  return (await machine.lab.ip(container, 'link')).map(({ ifname }) => ifname);
}

/** The container runs before its network is there. */
async function untilAttached(machine: Machine, pid: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt++) {
    if (fs.globSync(machine.path('/var/lib/cni/results/*')).length > 0) return;
    await Bun.sleep(50);
  }
  throw new Error(`Cannot go on: the container of process ${pid} has no network after 10 s`);
}
