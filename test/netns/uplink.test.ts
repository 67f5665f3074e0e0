// Does a bridge take a device of the host as its uplink, with the MTU and without the addresses of the network there?
import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { deadline } from '../helpers/deadline.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, type Lab, type Row, untilUp, withHost } from '../helpers/netns.ts';
import type { PluginReply } from '../helpers/plugin.ts';
import { describeRoot, requiresVxlan } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

const DEADLINE_MS = deadline(120_000);

interface Place {
  readonly lab: Lab;
  readonly container: Container;
  /** A host of the network outside, 10.64.0.200, connected to `up0` of the node. */
  readonly neighbour: Container;
}

async function withUplink(body: (place: Place) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const [container, neighbour] = [await lab.container(), await lab.container()];
    const peer = ['peer', 'name', 'wan', 'netns', neighbour.name];
    await lab.ip(lab.host, 'link', 'add', 'up0', 'mtu', '1400', 'type', 'veth', ...peer);
    await lab.ip(neighbour, 'addr', 'add', '10.64.0.200/24', 'dev', 'wan');
    await lab.ip(neighbour, 'link', 'set', 'wan', 'up');
    await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
    await untilUp(lab.host, 'up0');
    await body({ lab, container, neighbour });
  });
}

function confOf(lab: Lab, more: Row = {}): Row {
  const ipam = {
    type: 'host-local',
    subnet: '10.64.0.0/24',
    rangeStart: '10.64.0.10',
    dataDir: `${lab.tmp}/leases`,
  };
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'bridge',
    bridge: 'br0',
    uplinkInterface: 'up0',
    ipam,
    ...more,
  };
}

function call({ lab }: Pick<Place, 'lab'>, command: string, conf: Row, more: Row = {}): Promise<PluginReply> {
  return lab.plugin(String(conf.type), { command, conf, ...more });
}

async function linkOf(
  lab: Lab,
  name: string,
  ns: { name: string; path: string } = lab.host,
): Promise<Row | undefined> {
  return (await lab.ip(ns as typeof lab.host, 'link')).find(({ ifname }) => ifname === name);
}

describeRoot('bridge with an uplink', () => {
  test('[1.1.0] the container reaches hosts outside; the bridge goes with the last container, and the uplink is free', async () => {
    await withUplink(async place => {
      const { lab, container } = place;
      const second = await lab.container();
      const conf = confOf(lab);
      const { exitCode, result, stderr } = await call(place, 'ADD', conf, { container });
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
      expect(await linkOf(lab, 'up0')).toMatchObject({ master: 'br0' });
      expect(await ping(lab, container, '10.64.0.200')).toBe(true);
      const check = (env = {}) => call(place, 'CHECK', conf, { container, prevResult: result, env });
      expect(await check()).toMatchObject({ exitCode: 0, stdout: '' });
      for (const change of [['nomaster'], ['down']]) {
        await lab.ip(lab.host, 'link', 'set', 'up0', ...change);
        expect((await check()).error?.msg).toContain('uplink "up0"');
        expect(await check({ CATENA_REPAIR: '1' })).toMatchObject({ exitCode: 0, stdout: '' });
      }
      expect(await call(place, 'ADD', conf, { container: second })).toMatchObject({ exitCode: 0 });
      expect(await call(place, 'DEL', conf, { container })).toMatchObject({ exitCode: 0 });
      expect(await linkOf(lab, 'up0')).toMatchObject({ master: 'br0' });
      expect(await call(place, 'DEL', conf, { container: second })).toMatchObject({ exitCode: 0 });
      expect(await linkOf(lab, 'br0')).toBeUndefined();
      const uplink = await linkOf(lab, 'up0');
      expect({ master: uplink?.master, isUp: uplink?.flags.includes('UP') }).toEqual({
        master: undefined,
        isUp: true,
      });
    });
  });

  test('[1.1.0] the bridge stays as long as another device is on it, of the host or of a container', async () => {
    await withUplink(async place => {
      const { lab, container } = place;
      const other = await lab.container();
      const conf = confOf(lab);
      const gc = () => call(place, 'GC', { ...conf, 'cni.dev/valid-attachments': [] });
      await call(place, 'ADD', conf, { container });
      await lab.ip(lab.host, 'link', 'add', 'upper0', 'link', 'br0', 'type', 'macvlan');
      expect(await call(place, 'DEL', conf, { container })).toMatchObject({ exitCode: 0 });
      expect(await linkOf(lab, 'upper0')).toBeDefined();
      await lab.ip(lab.host, 'link', 'set', 'upper0', 'netns', other.name);
      expect(await gc()).toMatchObject({ exitCode: 0 });
      expect(await linkOf(lab, 'upper0', other)).toBeDefined();
      expect(await linkOf(lab, 'up0')).toMatchObject({ master: 'br0' });
      await lab.ip(other, 'link', 'delete', 'upper0');
      expect(await gc()).toMatchObject({ exitCode: 0 });
      expect(await linkOf(lab, 'br0')).toBeUndefined();
      expect((await linkOf(lab, 'up0'))?.master).toBeUndefined();
    });
  });

  test('[1.1.0] refuses a device that has addresses, belongs to another one or does not exist; STATUS says so', async () => {
    await withUplink(async place => {
      const { lab, container } = place;
      const refused = async (words: string, more: Row = {}) => {
        const status = await call(place, 'STATUS', confOf(lab, more));
        expect(status.error).toMatchObject({ code: 50, msg: expect.stringContaining(words) });
        const { error } = await call(place, 'ADD', confOf(lab, more), { container });
        expect(error).toMatchObject({ code: 7, msg: expect.stringContaining(words) });
        expect(await linkOf(lab, 'br0')).toBeUndefined();
      };
      await refused('there is no such device', { uplinkInterface: 'up9' });
      await lab.ip(lab.host, 'addr', 'add', '192.0.2.1/24', 'dev', 'up0');
      await refused('it has address 192.0.2.1/24');
      await lab.ip(lab.host, 'addr', 'flush', 'dev', 'up0');
      await lab.ip(lab.host, 'link', 'add', 'br1', 'type', 'bridge');
      await lab.ip(lab.host, 'link', 'set', 'up0', 'master', 'br1');
      await refused('it belongs to "br1"');
      await refused('it is a bridge', { uplinkInterface: 'br1' });
      expect((await linkOf(lab, 'br1'))?.flags).not.toContain('UP');
      await refused('it is the loopback device', { uplinkInterface: 'lo' });
    });
  });

  test('[1.1.0] an address that a host outside has is refused; the next attempt gets another one', async () => {
    await withUplink(async place => {
      const { lab, container, neighbour } = place;
      await lab.ip(neighbour, 'addr', 'add', '10.64.0.10/24', 'dev', 'wan');
      const address = (await linkOf(lab, 'wan', neighbour))?.address;
      const { error } = await call(place, 'ADD', confOf(lab), { container });
      const msg = `Cannot use 10.64.0.10 on "eth0": the host with hardware address ${address} has it`;
      expect(error).toMatchObject({ code: 11, msg });
      expect(await linkOf(lab, 'br0')).toBeUndefined();
      // Nothing was announced: the neighbour knows no other holder.
      expect(await lab.ip(neighbour, 'neigh', 'show', '10.64.0.10')).toEqual([]);
      const { result } = await call(place, 'ADD', confOf(lab), { container });
      expect(result.ips).toMatchObject([{ address: '10.64.0.11/24' }]);
      expect(await ping(lab, container, '10.64.0.200')).toBe(true);
      await call(place, 'DEL', confOf(lab), { container });
      const ignoring = confOf(lab, {
        detectConflicts: false,
        ipam: { ...confOf(lab).ipam, rangeEnd: '10.64.0.10' },
      });
      expect((await call(place, 'ADD', ignoring, { container })).result.ips).toMatchObject([
        { address: '10.64.0.10/24' },
      ]);
    });
  });

  test(
    'ADD that fails at the nth request gives the uplink back',
    async () => {
      await withUplink(async place => {
        const { lab, container } = place;
        const conf = confOf(lab, { groupFwdMask: 8, detectConflicts: false });
        const failed = await failInTurn(async request => {
          const env = { CATENA_FAULT: `kernel:${request}` };
          const { exitCode, stderr } = await call(place, 'ADD', conf, { container, env });
          const what = faultIn(stderr)?.what;
          if (exitCode === 0) await call(place, 'DEL', conf, { container });
          const [uplink, bridge] = [await linkOf(lab, 'up0'), await linkOf(lab, 'br0')];
          expect({ what, master: uplink?.master, bridge }).toEqual({
            what,
            master: undefined,
            bridge: undefined,
          });
          expect(uplink?.flags).toContain('UP');
          return what;
        });
        expect(failed.join('\n')).toContain('set group_fwd_mask 8');
      });
    },
    DEADLINE_MS,
  );
});

describeRoot('bridge with groupFwdMask', () => {
  test('[1.1.0] a new and an existing bridge forward the groups; CHECK and repair know them', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab, { uplinkInterface: undefined, groupFwdMask: 0x4000 });
      const maskOf = async () => (await linkOf(lab, 'br0'))?.linkinfo.info_data.group_fwd_mask;
      const place = { lab };
      const makeBridge = async () => {
        // That of the plugin waits for the next container.
        await lab.ip(lab.host, 'link', 'delete', 'br0');
        await lab.ip(lab.host, 'link', 'add', 'br0', 'type', 'bridge');
      };
      for (const setUp of [async () => {}, makeBridge]) {
        await setUp();
        const { result: prevResult } = await call(place, 'ADD', conf, { container });
        expect(await maskOf()).toBe('0x4000');
        await lab.ip(lab.host, 'link', 'set', 'br0', 'type', 'bridge', 'group_fwd_mask', '8');
        const { error } = await call(place, 'CHECK', conf, { container, prevResult });
        expect(error?.msg).toContain('group_fwd_mask of bridge "br0": expected 16384, found 8');
        const env = { CATENA_REPAIR: '1' };
        expect(await call(place, 'CHECK', conf, { container, prevResult, env })).toMatchObject({
          exitCode: 0,
        });
        await call(place, 'DEL', conf, { container, prevResult });
      }
      await lab.ip(lab.host, 'link', 'set', 'br0', 'type', 'bridge', 'group_fwd_mask', '0');
      // The name is taken, which ADD notices after the bridge.
      await lab.ip(container, 'link', 'add', 'eth0', 'type', 'bridge');
      expect((await call(place, 'ADD', conf, { container })).error).toMatchObject({ code: 4 });
      expect(await maskOf()).toBe('0');
    });
  });
});

describeRoot('"mtu": "auto"', () => {
  test.each(['bridge', 'ptp'])('[1.1.0] %s takes the MTU of the default route', async type => {
    await withUplink(async ({ lab, container }) => {
      const conf = confOf(lab, { type, uplinkInterface: undefined, mtu: 'auto' });
      const mtus = async () => {
        const { result } = await call({ lab }, 'ADD', conf, { container });
        const check = await call({ lab }, 'CHECK', conf, { container, prevResult: result });
        const [own] = await lab.ip(container, 'link', 'show', 'eth0');
        await call({ lab }, 'DEL', conf, { container });
        const reported = result.interfaces.find(({ sandbox }: Row) => sandbox).mtu;
        return { check: check.exitCode, reported, inside: own?.mtu };
      };
      expect(await mtus()).toEqual({ check: 0, reported: 1500, inside: 1500 });
      await lab.ip(lab.host, 'addr', 'add', '192.0.2.1/24', 'dev', 'up0');
      await lab.ip(lab.host, 'route', 'add', 'default', 'via', '192.0.2.9', 'metric', '50');
      expect(await mtus()).toEqual({ check: 0, reported: 1400, inside: 1400 });
      await lab.ip(lab.host, 'route', 'add', 'default', 'via', '192.0.2.9', 'mtu', '1300');
      expect(await mtus()).toEqual({ check: 0, reported: 1300, inside: 1300 });
      // Packets leave through either device.
      await lab.batch(
        lab.host,
        'link add up9 mtu 1280 type bridge',
        'link set up9 up',
        'addr add 198.51.100.1/24 dev up9',
        'route replace default nexthop via 192.0.2.9 dev up0 nexthop via 198.51.100.9 dev up9',
      );
      expect(await mtus()).toEqual({ check: 0, reported: 1280, inside: 1280 });
      await lab.ip(lab.host, 'route', 'replace', 'default', 'via', '192.0.2.9', 'mtu', '1300');
      // A tunnel to other nodes, and then one that another program made.
      if (requiresVxlan() !== undefined) return;
      const tunnel = ['type', 'vxlan', 'id', '7', 'local', '192.0.2.1', 'dstport', '4789'];
      await lab.ip(lab.host, 'link', 'add', 'catena-vxlan', 'mtu', '1250', ...tunnel);
      expect(await mtus()).toEqual({ check: 0, reported: 1300, inside: 1300 });
      await lab.ip(lab.host, 'link', 'set', 'catena-vxlan', 'alias', 'catena: way to other nodes');
      expect(await mtus()).toEqual({ check: 0, reported: 1250, inside: 1250 });
    });
  });

  test('[1.1.0] a bridge with an uplink takes that of the uplink', async () => {
    await withUplink(async ({ lab, container }) => {
      const conf = confOf(lab, { mtu: 'auto', detectConflicts: false });
      await call({ lab }, 'ADD', conf, { container });
      expect(await linkOf(lab, 'eth0', container)).toMatchObject({ mtu: 1400 });
      expect(await linkOf(lab, 'br0')).toMatchObject({ mtu: 1400 });
    });
  });
});
