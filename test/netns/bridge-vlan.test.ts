// Does the bridge plugin keep VLANs apart, and what does it say where the kernel cannot?
import { expect, test } from 'bun:test';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot, requiresVlanDevices, requiresVlanFiltering, testNeeding } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

const KEPT = { ignoreTables: ['inet catena_masquerade'] };

const WITH_FILTERING = requiresVlanFiltering();
const WITHOUT_FILTERING = WITH_FILTERING ? undefined : 'needs a kernel without VLAN filtering on bridges';

function confOf(more: object = {}): object {
  return { cniVersion: '1.1.0', name: 'podnet', type: 'bridge', bridge: 'br0', ...more };
}

function layer3(lab: Lab, vlan: number, more: object = {}): object {
  const subnet = `10.${vlan}.0.0/24`;
  const ipam = { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` };
  return confOf({ name: `net${vlan}`, vlan, isDefaultGateway: true, ipMasq: true, ipam, ...more });
}

async function add(lab: Lab, container: Container, conf: object) {
  const reply = await lab.plugin('bridge', { command: 'ADD', conf, container });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

/** VLANs of a port as `bridge vlan` shows them. */
async function vlansOf(lab: Lab, port: string): Promise<Row[]> {
  const { stdout } = await lab.run(lab.host, ['bridge', '-j', '-compressvlans', 'vlan', 'show', 'dev', port]);
  return JSON.parse(stdout)[0]?.vlans ?? [];
}

const NATIVE = ['PVID', 'Egress Untagged'];

describeRoot(
  'bridge VLANs on a kernel without VLAN filtering',
  () => {
    test.each([
      [{ vlan: 100 }, '"vlan": 100'],
      [{ vlanTrunk: [{ minID: 7, maxID: 9 }] }, '"vlanTrunk": [{"minID":7,"maxID":9}]'],
      [{ vlanTrunk: [] }, '"vlanTrunk": []'],
    ])('[1.1.0] ADD of %j is refused with code 2 and leaves nothing', async (options, words) => {
      await withHost(async lab => {
        const container = await lab.container();
        const conf = { ...layer3(lab, 100), vlan: 0, ...options };
        const before = await lab.dump(lab.host);
        const reply = await lab.plugin('bridge', { command: 'ADD', conf, container });
        expect(reply.error).toMatchObject({
          code: 2,
          msg: `Cannot use ${words}: this kernel is built without VLAN filtering on bridges`,
          details: 'it needs CONFIG_BRIDGE_VLAN_FILTERING',
        });
        expect(await lab.dump(lab.host)).toEqual(before);
        expect((await lab.run(lab.host, ['find', `${lab.tmp}/leases`, '-name', '10.*'])).stdout).toBe('');
      });
    });

    test('[1.1.0] an existing bridge is refused too, by ADD and STATUS', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.run(lab.host, ['ip', 'link', 'add', 'br0', 'type', 'bridge']);
        const before = await lab.dump(lab.host);
        const conf = confOf({ vlan: 100 });
        const reply = await lab.plugin('bridge', { command: 'ADD', conf, container });
        expect(reply.error).toMatchObject({ code: 2 });
        expect(await lab.dump(lab.host)).toEqual(before);
        const status = await lab.plugin('bridge', { command: 'STATUS', conf });
        expect(status.error).toMatchObject({ code: 50, msg: expect.stringContaining('"vlan": 100') });
      });
    });
  },
  WITHOUT_FILTERING,
);

describeRoot(
  'bridge VLANs',
  () => {
    test('[1.1.0] "vlan" separates containers, with a gateway each; DEL removes everything', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        for (const key of ['net/ipv4/ip_forward', 'net/ipv6/conf/all/forwarding'])
          await lab.sysctl(lab.host, key, 1);
        const before = await lab.dump(lab.host, KEPT);
        const [first, second] = [layer3(lab, 100), layer3(lab, 200)];
        const result = await add(lab, one, first);
        await add(lab, two, second);
        expect(result.interfaces.map((one: Row) => one.name)).toEqual([
          'br0',
          expect.stringMatching(/^veth[0-9a-f]{8}$/),
          'eth0',
          'br0.100',
        ]);
        expect(await vlansOf(lab, result.interfaces[1].name)).toEqual([{ vlan: 100, flags: NATIVE }]);
        const [gateway] = await lab.ip(lab.host, 'link', 'show', 'br0.100');
        expect(await vlansOf(lab, gateway?.link)).toEqual([{ vlan: 100, flags: NATIVE }]);
        expect(await ping(lab, one, '10.100.0.1')).toBe(true);
        expect(await ping(lab, two, '10.200.0.1')).toBe(true);
        await lab.run(two, ['ip', 'addr', 'add', '10.100.0.99/24', 'dev', 'eth0']);
        expect(await ping(lab, two, '10.100.0.2')).toBe(false);
        const check = { command: 'CHECK', conf: first, container: one, prevResult: result };
        expect(await lab.plugin('bridge', check)).toMatchObject({ exitCode: 0 });
        await lab.plugin('bridge', { command: 'DEL', conf: first, container: one });
        await lab.plugin('bridge', { command: 'DEL', conf: second, container: two });
        // Gateways stay with the bridge, as its own address does.
        for (const gateway of ['br0.100', 'br0.200']) await lab.ip(lab.host, 'link', 'del', gateway);
        expect(await lab.dump(lab.host, KEPT)).toEqual(before);
      });
    });

    test('[1.1.0] "vlanTrunk" passes tagged frames; untagged ones stay in the default VLAN', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const vlanTrunk = [{ id: 101 }, { minID: 200, maxID: 210 }];
        const result = await add(lab, container, confOf({ vlanTrunk }));
        expect(await vlansOf(lab, result.interfaces[1].name)).toMatchObject([
          { vlan: 1, flags: NATIVE },
          { vlan: 101 },
          { vlan: 200, vlanEnd: 210 },
        ]);
      });
    });

    testNeeding(
      '[1.1.0] tagged frames of a trunk reach the containers of its VLANs, and no others',
      () =>
        withHost(async lab => {
          const [trunk, inside, beyond] = [
            await lab.container(),
            await lab.container(),
            await lab.container(),
          ];
          await add(lab, trunk, confOf({ vlanTrunk: [{ minID: 200, maxID: 210 }] }));
          for (const [container, vlan] of [[inside, 210] as const, [beyond, 211] as const]) {
            await add(lab, container, confOf({ vlan }));
            const tagged = ['link', 'eth0', 'name', `tagged${vlan}`, 'type', 'vlan', 'id', `${vlan}`];
            await lab.ip(trunk, 'link', 'add', ...tagged);
            await lab.ip(trunk, 'addr', 'add', `10.${vlan}.0.1/24`, 'dev', `tagged${vlan}`);
            await lab.ip(trunk, 'link', 'set', `tagged${vlan}`, 'up');
            await lab.ip(container, 'addr', 'add', `10.${vlan}.0.2/24`, 'dev', 'eth0');
          }
          expect(await ping(lab, trunk, '10.210.0.2')).toBe(true);
          expect(await ping(lab, trunk, '10.211.0.2')).toBe(false);
        }),
      requiresVlanDevices(),
    );

    test('[1.1.0] "preserveDefaultVlan" leaves the port in the default VLAN as well', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const result = await add(lab, container, confOf({ vlan: 100, preserveDefaultVlan: true }));
        expect(await vlansOf(lab, result.interfaces[1].name)).toEqual([
          { vlan: 1, flags: ['Egress Untagged'] },
          { vlan: 100, flags: NATIVE },
        ]);
      });
    });

    test.each([
      ['VLAN of the port', (port: string) => `bridge vlan del dev ${port} vid 100`, 'VLANs of'],
      ['filtering', () => 'ip link set br0 type bridge vlan_filtering 0', 'VLAN filtering of bridge'],
      ['gateway', () => 'ip addr del 10.100.0.1/24 dev br0.100', 'addresses of "br0.100"'],
      ['gateway port', () => 'ip link del br0.100', 'gateway of VLAN 100'],
    ])('[1.1.0] CHECK reports what was changed: %s', async (_what, tamper, words) => {
      await withHost(async lab => {
        const container = await lab.container();
        const conf = layer3(lab, 100);
        const prevResult = await add(lab, container, conf);
        await lab.run(lab.host, tamper(prevResult.interfaces[1].name).split(' '));
        const reply = await lab.plugin('bridge', { command: 'CHECK', conf, container, prevResult });
        expect(reply).toMatchObject({ exitCode: 1, error: { msg: expect.stringContaining(words) } });
      });
    });

    test('[1.1.0] a foreign bridge without VLAN filtering is left alone', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.run(lab.host, ['ip', 'link', 'add', 'br0', 'type', 'bridge']);
        const before = await lab.dump(lab.host);
        const reply = await lab.plugin('bridge', { command: 'ADD', conf: layer3(lab, 100), container });
        expect(reply.error).toMatchObject({
          code: 7,
          msg: expect.stringContaining('VLAN filtering is off'),
          details: 'run: ip link set br0 type bridge vlan_filtering 1',
        });
        expect(await lab.dump(lab.host)).toEqual(before);
      });
    });

    test.each([
      ['a pair that leads elsewhere', ['ip link add br0.100 type veth peer name x0'], 7],
      [
        'a device upon the bridge',
        ['ip link add link br0 name br0.100 type vlan id 100', 'bridge vlan add dev br0 vid 100 self'],
        0,
      ],
    ])('[1.1.0] %s has the name of the gateway port', async (_what, lines, code) => {
      await withHost(async lab => {
        const container = await lab.container();
        for (const line of ['ip link add br0 type bridge vlan_filtering 1', ...lines]) {
          await lab.run(lab.host, line.split(' '));
        }
        const reply = await lab.plugin('bridge', { command: 'ADD', conf: layer3(lab, 100), container });
        expect(reply.error?.code ?? 0).toBe(code);
        if (code === 0) expect(await ping(lab, container, '10.100.0.1')).toBe(true);
      });
    });
  },
  WITH_FILTERING,
);
