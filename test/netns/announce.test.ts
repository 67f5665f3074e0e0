// Does a container answer at once when its address was another container's a moment ago?
import { expect, test } from 'bun:test';
import { useLabs } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

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

  test.each([
    ['has given up is announced', true],
    ['still has is not announced', false],
  ])('an address that a machine behind another port of the bridge %s', async (_, isGivenUp) => {
    const lab = await createLab();
    const [machine, container] = [await lab.container(), await lab.container()];
    const addresses = ['10.88.0.9/24', 'fd88::9/64'];
    const ipam = { type: 'static', addresses: addresses.map(address => ({ address })) };
    const gateway = { type: 'host-local', ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]] };
    const conf = { cniVersion: '1.1.0', name: 'net', type: 'bridge', bridge: 'br0', isGateway: true, ipam };
    const first = { ...conf, ipam: { ...gateway, dataDir: `${lab.tmp}/leases` } };
    expect(
      await lab.plugin('bridge', { command: 'ADD', conf: first, container: await lab.container() }),
    ).toMatchObject({ exitCode: 0 });
    await lab.batch(lab.host, `link add port9 master br0 up type veth peer name eth0 netns ${machine.name}`);
    await lab.batch(machine, 'link set eth0 up', ...addresses.map(one => `addr add ${one} dev eth0 nodad`));
    const hosts = addresses.map(one => one.replace(/\/.*/, ''));
    for (const host of hosts) await until(() => ping(lab, lab.host, host));
    if (isGivenUp) await lab.batch(machine, ...addresses.map(one => `addr del ${one} dev eth0`));

    expect(await lab.plugin('bridge', { command: 'ADD', conf, container })).toMatchObject({ exitCode: 0 });
    const [owner] = await lab.ip(isGivenUp ? container : machine, 'link', 'show', 'eth0');
    const known = await Promise.all(hosts.map(host => lab.ip(lab.host, 'neigh', 'show', host)));
    expect(known.map(([entry]) => entry?.lladdr)).toEqual([owner?.address, owner?.address]);
  });
});
