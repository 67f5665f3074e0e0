// Does containerd run containers and pods on our executables, and is nothing left of them, however they ended?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Containerd, requiresContainerd, startContainerd } from '../helpers/containerd.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import type { Outside, Row } from '../helpers/netns.ts';
import { findReachable, findUnreachable, PUBLISHED } from '../helpers/published.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

interface Node {
  readonly machine: Machine;
  readonly containerd: Containerd;
  readonly outside: Outside;
}

const PODS = {
  type: 'bridge',
  bridge: 'cni0',
  isDefaultGateway: true,
  ipMasq: true,
  hairpinMode: true,
  ipam: { type: 'host-local', ranges: [[{ subnet: '10.22.0.0/16' }], [{ subnet: 'fd00:22::/64' }]] },
};
const LIST = {
  cniVersion: '1.0.0',
  name: 'pods',
  plugins: [
    PODS,
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'bandwidth', capabilities: { bandwidth: true } },
    { type: 'firewall' },
    { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' } },
  ],
};

async function withContainerd(list: Row, body: (node: Node) => Promise<void>): Promise<void> {
  await withMachine(async machine => {
    machine.write('/etc/cni/net.d/10-pods.conflist', JSON.stringify(list));
    const outside = await machine.lab.outside();
    await body({ machine, containerd: await startContainerd(machine), outside });
  });
}

describeRoot(
  'ctr run --cni',
  () => {
    test.each([
      ['killed', false],
      ['killed, after containerd was restarted', true],
    ])('a container %s leaves nothing', async (_how, restart) => {
      await withContainerd(LIST, async ({ machine, containerd, outside }) => {
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
        // Who started it lost sight of it, and took the network away; the rest is by hand.
        if (restart) await containerd.ctr('task', 'rm', '--force', 'web');
        if (restart) await containerd.ctr('container', 'rm', 'web');
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
      await withContainerd(LIST, async ({ machine, containerd, outside }) => {
        const { lab } = machine;
        const before = await machine.traces();
        const cri = containerd.cri();
        expect(await cri.networkStatus()).toEqual({ ready: true, message: '' });
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

    test('leave nothing when they were killed and containerd was restarted', async () => {
      await withContainerd(LIST, async ({ machine, containerd, outside }) => {
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

    test('are refused a port that another one has, with its name, and nothing is left of them', async () => {
      await withContainerd(LIST, async ({ machine, containerd }) => {
        const before = await machine.traces();
        const cri = containerd.cri();
        const web = await cri.runPod({ name: 'web', ports: PUBLISHED });
        // Names only: the kernel goes on with the addresses of a new link for a while.
        const traces = async () => {
          const { kernel, elements, files } = await machine.traces();
          return { links: kernel.links.map(({ ifname }) => ifname), elements, files };
        };
        const running = await traces();
        const refused = await cri.runPod({ name: 'other', ports: PUBLISHED }).catch(String);
        expect(refused).toContain(`"catena:pods/${web.id}/eth0" holds 8080/tcp`);
        expect(await traces()).toEqual(running);
        await cri.removePod(web.id);
        cri.close();
        expect(await machine.settled(before)).toEqual(before);
      });
    });
  },
  requires('ip', 'nft', 'tc'),
  requiresContainerd(),
);

/** The container runs before its network is there. */
async function untilAttached(machine: Machine, pid: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt++) {
    if (fs.globSync(machine.path('/var/lib/cni/results/*')).length > 0) return;
    await Bun.sleep(50);
  }
  throw new Error(`Cannot go on: the container of process ${pid} has no network after 10 s`);
}
