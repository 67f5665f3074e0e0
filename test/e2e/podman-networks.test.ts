// Does a container of Podman get and lose networks while it runs, and is nothing left of them?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { withMachine } from '../helpers/machine.ts';
import { requiresPodman, startPodman } from '../helpers/podman.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(180_000));

const CATENA = '/opt/cni/bin/catena';
const STORAGE = {
  cniVersion: '1.0.0',
  name: 'storage',
  plugins: [
    { type: 'bridge', bridge: 'br9', isGateway: true, ipam: { type: 'host-local', subnet: '10.99.0.0/24' } },
    { type: 'portmap', capabilities: { portMappings: true } },
  ],
};

describeRoot(
  'networks of a container of Podman',
  () => {
    test('come by its name, and go alone or after it', async () => {
      await withMachine(async machine => {
        const podman = await startPodman(machine);
        const before = await machine.traces();
        machine.write('/etc/cni/net.d/99-storage.conflist', JSON.stringify(STORAGE));
        const web = await podman.runContainer('web');
        const other = await podman.runContainer('other');
        const cap = JSON.stringify({
          portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
        });
        const result = JSON.parse(await machine.ok([CATENA, 'attach', 'web', 'storage', '--cap', cap]));
        expect(result.ips).toMatchObject([{ address: '10.99.0.2/24' }]);
        await machine.ok([CATENA, 'attach', other.id.slice(0, 12), 'storage']);
        expect(await ping(machine.lab, machine.netnsOf(web.pid), '10.99.0.3')).toBe(true);
        expect(await podman.run('exec', 'web', 'ip', 'route')).toContain('default via 10.88.0.1 dev eth0');

        const kept = await machine.run([CATENA, 'detach', 'web', 'podman']);
        expect([kept.exitCode, kept.stderr]).toEqual([1, expect.stringContaining('podman made it')]);
        await machine.ok([CATENA, 'detach', 'web', 'storage']);
        const links = await machine.lab.ip(machine.netnsOf(web.pid), 'link', 'show');
        expect(links.map(({ ifname }) => ifname)).toEqual(['lo', 'eth0']);

        await podman.run('rm', '--force', '--time', '0', 'web', 'other');
        await machine.ok([CATENA, 'detach', other.id, 'net1']);
        await machine.ok(['rm', '/etc/cni/net.d/99-storage.conflist']);
        expect((await machine.settled(before)).elements).toEqual(before.elements);
      });
    });
  },
  requiresPodman(),
);
