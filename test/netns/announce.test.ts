// Does a container answer at once when its address was another container's a moment ago?
import { expect, test } from 'bun:test';
import { useLabs } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';

/** One in a few announcements was lost while the kernel alone made them, when the interface came up. */
const ROUNDS = 10;
const FORMER_OWNER = '0a:00:00:00:00:99';

describeRoot('announceAddresses()', () => {
  const createLab = useLabs();

  test.each([
    ['10.88.0.0/24', '10.88.0'],
    ['fd88::/120', 'fd88:'],
  ])(
    'neighbours in %s learn the hardware address of the new owner before ADD returns',
    async (subnet, prefix) => {
      const lab = await createLab();
      const ipam = { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` };
      const conf = { cniVersion: '1.1.0', name: 'net', type: 'bridge', bridge: 'br0', isGateway: true, ipam };
      const neighbour = await lab.container();
      const call = (container: typeof neighbour) => ({ conf, container });
      expect((await lab.plugin('bridge', { command: 'ADD', ...call(neighbour) })).exitCode).toBe(0);
      const separator = prefix.endsWith(':') ? ':' : '.';
      for (let round = 0; round < ROUNDS; round++) {
        // host-local goes through the range in order: the first container has 2.
        const address = `${prefix}${separator}${(round + 3).toString(separator === ':' ? 16 : 10)}`;
        const stale = ['neigh', 'replace', address, 'lladdr', FORMER_OWNER, 'nud', 'reachable', 'dev'];
        await lab.run(lab.host, ['ip', ...stale, 'br0']);
        await lab.run(neighbour, ['ip', ...stale, 'eth0']);
        const container = await lab.container();
        const { result } = await lab.plugin('bridge', { command: 'ADD', ...call(container) });
        expect(result?.ips).toMatchObject([{ address: expect.stringContaining(`${address}/`) }]);
        const [device] = await lab.ip(container, 'link', 'show', 'eth0');
        const entries = await Promise.all(
          [lab.host, neighbour].map(async place => (await lab.ip(place, 'neigh', 'show', address))[0]),
        );
        expect(entries.map(entry => entry?.lladdr)).toEqual([device?.address, device?.address]);
        expect((await lab.plugin('bridge', { command: 'DEL', ...call(container) })).exitCode).toBe(0);
      }
    },
  );
});
