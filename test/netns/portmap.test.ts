// Do mapped ports lead where they should, for whom they should, and does nothing stay behind?

import { afterEach, describe, expect, test } from 'bun:test';
import { ownerOf } from '../../plugins/portmap/plan.ts';
import type { Dump } from '../helpers/dump.ts';
import { type Lab, type Namespace, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR, type PluginReply } from '../helpers/plugin.ts';
import {
  addPod,
  answers,
  askUdp,
  BRIDGE,
  FAMILIES,
  fakePod,
  type Pod,
  peerSeen,
  podsOnBridge,
  resultOf,
} from '../helpers/pods.ts';
import { describeInOrder, requires, testNeeding } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { startServer } from '../helpers/traffic.ts';

interface Mapping {
  hostPort: number;
  containerPort: number;
  protocol?: string;
  hostIP?: string;
}

interface Call {
  readonly version?: string;
  readonly network?: string;
  readonly conf?: object;
  readonly prevResult?: unknown;
}

const PROTOCOLS = ['tcp', 'udp'] as const;
const WEB: Mapping[] = PROTOCOLS.map(protocol => ({ hostPort: 8080, containerPort: 80, protocol }));

describeInOrder(
  'portmap',
  () => {
    const createLab = useLabs(afterEach);

    test('ADD maps ports, CHECK succeeds, DEL removes them', async () => {
      const version = LATEST_SPEC_VERSION;
      const { lab, pod } = await podsOnBridge(createLab);
      const before = await settledDump(lab);
      const added = await add(lab, pod, [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }], {
        version,
      });
      expect(added).toMatchObject({ exitCode: 0, result: resultOf(pod, version) });
      const owner = `catena:podnet/${pod.id}/eth0`;
      expect(await elementsOf(lab)).toMatchObject({
        wildcard4: [[elem(owner, ['tcp', 8080]), { concat: [pod.v4, 80] }]],
        wildcard6: [[elem(owner, ['tcp', 8080]), { concat: [pod.v6, 80] }]],
        snat4: [[elem(owner, pod.v4), { goto: { target: 'snat4_24' } }]],
        snat6: [[elem(owner, pod.v6), { goto: { target: 'snat6_64' } }]],
        hairpin4: [elem(owner, ['10.9.0.0', pod.v4])],
        hairpin6: [elem(owner, ['fd00:9::', pod.v6])],
      });
      expect(await check(lab, pod, WEB.slice(0, 1), { version })).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
      expect(await del(lab, pod, { version })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await elementsOf(lab)).toEqual({});
      expect(await settledDump(lab)).toEqual(before);
    });

    test('more mappings than the limit are refused before anything is changed', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const mappings = Array.from({ length: 8193 }, (_, i) => ({
        hostPort: 20_000 + i,
        containerPort: 80,
        protocol: 'tcp',
      }));
      expect((await add(lab, pod, mappings)).error).toMatchObject({
        code: 7,
        msg: 'Cannot map 8193 host ports: one attachment has at most 8192 mappings',
      });
      expect(await lab.nft(lab.host, 'list', 'ruleset')).toEqual([]);
    });

    describe.each(PROTOCOLS)('traffic by %s', protocol => {
      test('leaves other ports, other addresses and unmapped families alone', async () => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        await startServer(lab, pod, { protocol, port: 80 });
        const mapping = { hostPort: 8080, containerPort: 80, protocol, hostIP: outside.hostAddress.v4 };
        expect((await add(lab, pod, [mapping])).exitCode).toBe(0);
        const reach = (address: string, port = 8080) => answers(lab, outside, protocol, address, port);
        expect(await reach(outside.hostAddress.v4)).toBe(true);
        expect(await reach(outside.hostAddress.v4, 8081)).toBe(false);
        expect(await reach(BRIDGE.v4)).toBe(false);
        expect(await reach(outside.hostAddress.v6)).toBe(false);
      });

      test('ends with DEL', async () => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        await startServer(lab, pod, { protocol, port: 80 });
        await add(lab, pod, WEB);
        expect(await answers(lab, outside, protocol, outside.hostAddress.v4)).toBe(true);
        await del(lab, pod);
        expect(await answers(lab, outside, protocol, outside.hostAddress.v4)).toBe(false);
      });
    });

    test('ADD accepts hostIP as an address, as all of its family, or as localhost', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const hostIPs = ['', '0.0.0.0', '::', '127.0.0.1', '10.201.0.1', 'fd00:201::1', '::ffff:10.201.0.1'];
      const mappings = hostIPs.map((hostIP, i) => ({ hostPort: 8000 + i, containerPort: 80, hostIP }));
      expect((await add(lab, pod, mappings)).exitCode).toBe(0);
      const keys = await keysOf(lab);
      expect(keys.wildcard4).toEqual([
        ['tcp', 8000],
        ['tcp', 8001],
      ]);
      expect(keys.wildcard6).toEqual([
        ['tcp', 8000],
        ['tcp', 8002],
      ]);
      expect(keys.specific4).toEqual([
        ['10.201.0.1', 'tcp', 8004],
        ['10.201.0.1', 'tcp', 8006],
        ['127.0.0.1', 'tcp', 8003],
      ]);
      expect(keys.specific6).toEqual([['fd00:201::1', 'tcp', 8005]]);
      await startServer(lab, pod, { protocol: 'tcp', port: 80 });
      expect(await answers(lab, lab.host, 'tcp', '127.0.0.1', 8003)).toBe(true);
      expect(await answers(lab, lab.host, 'tcp', BRIDGE.v4, 8003)).toBe(false);
    });

    test.each([
      [4, 6, '10.201.0.1', 'fd00:201::1'],
      [6, 4, 'fd00:201::1', '10.201.0.1'],
    ] as const)(
      'ADD says that a port of an IPv%i address leads to no pod that has only IPv%i, and maps the others',
      async (asked, had, hostIP, other) => {
        const { lab, pod } = await podsOnBridge(createLab);
        const prevResult = {
          ...resultOf(pod),
          ips: ((resultOf(pod) as Row).ips as Row[]).filter(one => one.address.includes(':') === (had === 6)),
        };
        const idle = { hostPort: 8000, containerPort: 80, hostIP };
        const added = await add(lab, pod, [idle, { hostPort: 8001, containerPort: 80, hostIP: other }], {
          prevResult,
        });
        expect(added).toMatchObject({ exitCode: 0 });
        expect(added.stderr).toContain(`8000/tcp is not forwarded: the pod has no IPv${asked} address`);
        expect(added.stderr).not.toContain('8001');
        expect(await keysOf(lab)).toMatchObject({ [`specific${had}`]: [[other, 'tcp', 8001]] });
        expect((await keysOf(lab))[`specific${asked}`] ?? []).toEqual([]);
        expect(await del(lab, pod)).toMatchObject({ exitCode: 0, stdout: '' });
        // Nothing holds the port that leads nowhere.
        expect(await add(lab, pod, [idle], { prevResult })).toMatchObject({ exitCode: 0 });
        expect(await elementsOf(lab)).toEqual({});
      },
    );

    testNeeding(
      'ADD where no sysctl can be set fails only if one is needed and missing, and says what to do',
      async () => {
        const { lab, pod } = await podsOnBridge(createLab);
        const readOnly =
          'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$0"';
        const addWith = (mapping: Mapping) =>
          lab.run(lab.host, ['unshare', '-m', 'sh', '-c', readOnly, `${BIN_DIR}/portmap`], {
            env: {
              CNI_COMMAND: 'ADD',
              CNI_CONTAINERID: pod.id,
              CNI_NETNS: pod.path,
              CNI_IFNAME: 'eth0',
              CNI_PATH: BIN_DIR,
              PATH: process.env.PATH ?? '',
            },
            stdin: JSON.stringify({
              ...confOf({ conf: { runtimeConfig: { portMappings: [mapping] } } }),
              prevResult: resultOf(pod),
            }),
          });
        const setting = (which: string, value: number) =>
          lab.sysctl(lab.host, `net/ipv4/conf/${which}/route_localnet`, value);
        const everywhere = { hostPort: 8080, containerPort: 80 };
        const refused = JSON.parse((await addWith(everywhere)).stdout);
        expect(refused.msg).toContain('Cannot open host ports to 127.0.0.1');
        expect(refused.details).toContain('route_localnet" to 1 on the node');
        expect(await elementsOf(lab)).toEqual({});
        const ok = { exitCode: 0, stderr: '' };
        // An address of the host that is no loopback address needs none.
        expect(await addWith({ ...everywhere, hostIP: '10.201.0.1' })).toMatchObject(ok);
        expect(await del(lab, pod)).toMatchObject({ exitCode: 0 });
        // The kernel takes the value for all, or that of the device.
        for (const which of ['all', 'br0']) {
          await setting(which, 1);
          expect(await addWith(everywhere)).toMatchObject(ok);
          expect(await del(lab, pod)).toMatchObject({ exitCode: 0 });
          await setting(which, 0);
        }
      },
      requires('unshare', 'mount'),
    );

    test('ADD maps SCTP, and any letter case of a protocol', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const mapping = { hostPort: 9000, containerPort: 9, protocol: 'SCTP' };
      expect((await add(lab, pod, [mapping])).exitCode).toBe(0);
      expect(await keysOf(lab)).toMatchObject({ wildcard4: [['sctp', 9000]], wildcard6: [['sctp', 9000]] });
    });

    test('ADD with snat off keeps sources and leaves route_localnet unchanged', async () => {
      const { lab, pod, outside } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'tcp', port: 80 });
      expect((await add(lab, pod, WEB, { conf: { snat: false } })).exitCode).toBe(0);
      expect(await peerSeen(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(outside.address.v4);
      expect(Object.keys(await elementsOf(lab)).filter(name => /snat|hairpin/.test(name))).toEqual([]);
      expect(await lab.sysctl(lab.host, 'net/ipv4/conf/br0/route_localnet')).toBe('0');
      expect((await check(lab, pod, WEB, { conf: { snat: false } })).exitCode).toBe(0);
    });

    test('ADD with masqAll masquerades every client', async () => {
      const { lab, pod, outside } = await podsOnBridge(createLab);
      for (const protocol of PROTOCOLS) await startServer(lab, pod, { protocol, port: 80 });
      expect((await add(lab, pod, WEB, { conf: { masqAll: true } })).exitCode).toBe(0);
      for (const family of FAMILIES) {
        expect(await peerSeen(lab, outside, 'tcp', outside.hostAddress[family])).toBe(BRIDGE[family]);
      }
      expect((await check(lab, pod, WEB, { conf: { masqAll: true } })).exitCode).toBe(0);
    });

    test('ADD does not masquerade connections that were not forwarded', async () => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'tcp', port: 80 });
      await add(lab, pod, WEB, { conf: { masqAll: true } });
      expect(await peerSeen(lab, outside, 'tcp', pod.v4, 80)).toBe(outside.address.v4);
      expect(await peerSeen(lab, neighbour, 'tcp', pod.v4, 80)).toBe(neighbour.v4);
    });

    test('ADD makes 127.0.0.1 work on the host, and keeps pods from the host’s loopback', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await add(lab, pod, WEB);
      expect(await lab.sysctl(lab.host, 'net/ipv4/conf/br0/route_localnet')).toBe('1');
      await startServer(lab, lab.host, { protocol: 'tcp', port: 9999, address: '127.0.0.1' });
      await lab.sysctl(neighbour, 'net/ipv4/conf/all/route_localnet', 1);
      await lab.ip(neighbour, 'addr', 'flush', 'dev', 'lo');
      await lab.ip(neighbour, 'route', 'add', '127.0.0.1', 'via', BRIDGE.v4, 'src', neighbour.v4);
      expect(await answers(lab, neighbour, 'tcp', '127.0.0.1', 9999)).toBe(false);
      await lab.run(lab.host, ['nft', 'flush', 'chain', 'inet', 'catena_portmap', 'guard']);
      // Without the guard it would have got through: the test tests what it says.
      expect(await answers(lab, neighbour, 'tcp', '127.0.0.1', 9999)).toBe(true);
    });

    test('a second ADD changes nothing, and other mappings replace the earlier ones', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      await add(lab, pod, WEB);
      const once = await elementsOf(lab);
      expect((await add(lab, pod, WEB)).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual(once);
      const other = [
        { hostPort: 8080, containerPort: 81, protocol: 'tcp' },
        { hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '10.201.0.1' },
      ];
      expect((await add(lab, pod, other, { conf: { snat: false } })).exitCode).toBe(0);
      expect(await elementsOf(lab)).toMatchObject({
        wildcard4: [[elem(`catena:podnet/${pod.id}/eth0`, ['tcp', 8080]), { concat: [pod.v4, 81] }]],
      });
      expect(Object.keys(await elementsOf(lab)).sort()).toEqual(
        ['claims4', 'claims6', 'hostips4', 'pods4', 'pods6', 'specific4', 'wildcard4', 'wildcard6'].sort(),
      );
      await del(lab, pod);
      expect(await elementsOf(lab)).toEqual({});
    });

    test('ADD and DEL count the ports that are taken on one address', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const on = (...ports: number[]) =>
        ports.map(hostPort => ({ hostPort, containerPort: 80, hostIP: '10.201.0.1' }));
      const counted = async () => (await elementsOf(lab)).hostips4;
      await add(lab, pod, on(1, 2));
      await add(lab, neighbour, on(3));
      expect(await counted()).toEqual([['10.201.0.1', 3]]);
      await add(lab, pod, on(1));
      await add(lab, pod, on(1));
      expect(await counted()).toEqual([['10.201.0.1', 2]]);
      await del(lab, pod);
      await del(lab, pod);
      expect(await counted()).toEqual([['10.201.0.1', 1]]);
      expect((await add(lab, pod, [{ hostPort: 3, containerPort: 80 }])).error?.code).toBe(100);
      await del(lab, neighbour);
      expect(await counted()).toBeUndefined();
      expect((await add(lab, pod, [{ hostPort: 3, containerPort: 80 }])).exitCode).toBe(0);
    });

    test('ADD without mappings makes no kernel request', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const trace = { CATENA_NETLINK_TRACE: '1' };
      const empty = await add(lab, pod, [], {}, trace);
      expect(empty).toMatchObject({ exitCode: 0, result: resultOf(pod), stderr: '' });
      const noAddress = { cniVersion: LATEST_SPEC_VERSION, ips: [] };
      const without = await add(lab, pod, WEB, { prevResult: noAddress }, trace);
      expect(without).toMatchObject({ exitCode: 0, stderr: '' });
      expect((await add(lab, pod, WEB, {}, trace)).stderr).toContain('NEWSETELEM');
      expect(await lab.nft(lab.host, 'list', 'tables')).toHaveLength(1);
    });

    test('ADD of a port that is taken names the owner and leaves nothing', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await add(lab, pod, [
        { hostPort: 8080, containerPort: 80 },
        { hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '10.201.0.1' },
      ]);
      const before = await elementsOf(lab);
      const cases: [Mapping, string][] = [
        [{ hostPort: 8080, containerPort: 81 }, '8080/tcp'],
        [{ hostPort: 8080, containerPort: 81, hostIP: '127.0.0.1' }, '8080/tcp'],
        [{ hostPort: 8080, containerPort: 81, hostIP: 'fd00:201::1' }, '8080/tcp'],
        [{ hostPort: 53, containerPort: 54, protocol: 'udp', hostIP: '10.201.0.1' }, '10.201.0.1:53/udp'],
        [{ hostPort: 53, containerPort: 54, protocol: 'udp' }, '10.201.0.1:53/udp'],
        [{ hostPort: 53, containerPort: 54, protocol: 'udp', hostIP: '0.0.0.0' }, '10.201.0.1:53/udp'],
      ];
      for (const [mapping, held] of cases) {
        const refused = await add(lab, neighbour, [{ hostPort: 7000, containerPort: 70 }, mapping]);
        expect(refused).toMatchObject({ exitCode: 1, error: { code: 100 } });
        expect(refused.error?.msg).toEndWith(`container "${pod.id}" of network "podnet" holds ${held}`);
        expect(await elementsOf(lab)).toEqual(before);
      }
      const free: Mapping[] = [
        { hostPort: 8080, containerPort: 80, protocol: 'udp' },
        { hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '10.9.0.1' },
        { hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '::' },
      ];
      expect((await add(lab, neighbour, free)).exitCode).toBe(0);
    });

    test('ADD leaves a port to the network of the container that has it, and DEL passes it on', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'tcp', port: 80 });
      const second = { ...neighbour, id: pod.id };
      const network = 'second';
      const one = { hostPort: 22, containerPort: 2222, hostIP: '10.201.0.1' };
      const ports = [...WEB, one];
      await add(lab, pod, ports);
      const before = await elementsOf(lab);
      expect(await add(lab, second, ports, { network })).toMatchObject({ exitCode: 0 });
      const both = await elementsOf(lab);
      expect([both.wildcard4, both.specific4]).toEqual([before.wildcard4, before.specific4]);
      expect(await check(lab, second, ports, { network })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await answers(lab, lab.host, 'tcp', BRIDGE.v4)).toBe(true);
      await del(lab, second, { network });
      expect(await elementsOf(lab)).toEqual(before);

      await add(lab, second, ports, { network });
      await del(lab, pod);
      const alone = await elementsOf(lab);
      const owner = `catena:second/${pod.id}/eth0`;
      expect(alone.specific4).toEqual([
        [elem(owner, ['10.201.0.1', 'tcp', 22]), { concat: [second.v4, 2222] }],
      ]);
      expect(await check(lab, second, ports, { network })).toMatchObject({ exitCode: 0, stdout: '' });
      await startServer(lab, neighbour, { protocol: 'udp', port: 80 });
      expect(await answers(lab, lab.host, 'udp', BRIDGE.v4)).toBe(true);
      expect((await add(lab, await fakePod(lab, 9), [one])).error?.code).toBe(100);
      // The same as if it had been alone from the beginning.
      await add(lab, second, ports, { network });
      expect(await elementsOf(lab)).toEqual(alone);
      await del(lab, second, { network });
      expect(await elementsOf(lab)).toEqual({});
    });

    test('ADD takes a port from a network of the container that is gone, so no other container gets it', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const second = { ...neighbour, id: pod.id };
      await add(lab, pod, WEB);
      await lab.run(pod, ['ip', 'link', 'del', 'eth0']);
      expect(await add(lab, second, WEB, { network: 'second' })).toMatchObject({ exitCode: 0 });
      expect((await elementsOf(lab)).wildcard4?.map(one => one[0])).toEqual(
        WEB.map(({ hostPort, protocol = 'tcp' }) =>
          elem(`catena:second/${pod.id}/eth0`, [protocol, hostPort]),
        ),
      );
      expect((await add(lab, await fakePod(lab, 9), WEB)).error?.code).toBe(100);
    });

    test('a port that a network no longer asks for passes to the other network of the container', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const second = { ...neighbour, id: pod.id };
      const network = 'second';
      await startServer(lab, neighbour, { protocol: 'tcp', port: 80 });
      await add(lab, pod, WEB);
      await add(lab, second, WEB, { network });
      const elsewhere = WEB.map(one => ({ ...one, hostPort: 8081 }));
      expect(await add(lab, pod, elsewhere)).toMatchObject({ exitCode: 0 });
      expect(await check(lab, second, WEB, { network })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await answers(lab, lab.host, 'tcp', BRIDGE.v4)).toBe(true);
      expect(await check(lab, pod, elsewhere)).toMatchObject({ exitCode: 0, stdout: '' });
      await del(lab, pod);
      await del(lab, second, { network });
      expect(await elementsOf(lab)).toEqual({});
    });

    test('an address whose count others deleted is counted again, so its ports stay taken', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const [first, second] = [8081, 8082].map(hostPort => ({
        hostPort,
        containerPort: 80,
        hostIP: '10.201.0.1',
      })) as [Mapping, Mapping];
      await add(lab, pod, [first]);
      await add(lab, neighbour, [second]);
      const flush = ['nft', 'flush', 'map', 'inet', 'catena_portmap', 'hostips4'];
      expect((await lab.run(lab.host, flush)).exitCode).toBe(0);
      expect((await add(lab, pod, [first])).exitCode).toBe(0);
      await del(lab, pod);
      expect((await check(lab, neighbour, [second])).exitCode).toBe(0);
      const everywhere = { hostPort: 8082, containerPort: 80 };
      expect((await add(lab, pod, [everywhere])).error).toMatchObject({ code: 100 });
    });

    test('after others deleted claims, repair counts again, and DEL and GC remove what no claim leads to', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const mappings = [
        { hostPort: 8080, containerPort: 80 },
        { hostPort: 8081, containerPort: 80, hostIP: '10.201.0.1' },
        { hostPort: 8082, containerPort: 80, hostIP: '10.201.0.1' },
      ];
      const conf = { conditionsV4: ['ip', 'saddr', '10.201.0.0/24'] };
      const call = (command: string, more: object = {}) => {
        const runtimeConfig = { portMappings: mappings };
        const request = { conf: confOf({ conf }, { runtimeConfig }), prevResult: resultOf(pod) };
        return lab.plugin('portmap', { command, container: pod, ...request, ...more });
      };
      expect(await call('ADD')).toMatchObject({ exitCode: 0 });
      const before = await elementsOf(lab);
      const { handle } = ownerOf({ network: 'podnet', containerId: pod.id, ifname: 'eth0' });
      const loseOne = () => load(lab, `delete element inet catena_portmap claims4 { "${handle}" . 1 }`);
      await loseOne();
      expect(await call('CHECK', { env: { CATENA_REPAIR: '1' } })).toMatchObject({ exitCode: 0 });
      expect((await elementsOf(lab)).hostips4).toEqual(before.hostips4);
      expect((await elementsOf(lab)).tally4).toEqual(before.tally4);
      await call('DEL');
      expect(await elementsOf(lab)).toEqual({});
      const lose = (...families: number[]) =>
        load(lab, ...families.map(family => `flush map inet catena_portmap claims${family}`));
      for (const [change, release] of [
        [() => lose(4, 6), () => call('DEL')],
        [loseOne, () => call('DEL')],
        [() => lose(6), () => call('DEL', { conf: confOf({ conf }) })],
        [() => lose(4, 6), () => gc(lab, [])],
      ] as const) {
        expect(await call('ADD')).toMatchObject({ exitCode: 0 });
        await change();
        expect(await release()).toMatchObject({ exitCode: 0 });
        expect(await elementsOf(lab)).toEqual({});
      }
    });

    test('ADD replaces the elements of the address’s previous owner', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await add(lab, pod, [...WEB, { hostPort: 22, containerPort: 22 }]);
      await lab.ip(pod, 'addr', 'flush', 'dev', 'eth0');
      const prevResult = resultOf({ ...neighbour, v4: pod.v4, v6: pod.v6 });
      expect((await add(lab, neighbour, WEB, { prevResult })).exitCode).toBe(0);
      const owners = JSON.stringify(await elementsOf(lab)).match(/catena:[^"]*/g);
      expect([...new Set(owners)]).toEqual([`catena:podnet/${neighbour.id}/eth0`]);
      expect((await del(lab, pod)).exitCode).toBe(0);
      expect((await check(lab, neighbour, WEB, { prevResult })).exitCode).toBe(0);
    });

    test('of many ADDs at once for one port one succeeds, and all others with different ports do', async () => {
      const { lab } = await podsOnBridge(createLab);
      const fakes = Array.from({ length: 8 }, (_, i) => fakePod(lab, i));
      const pods = await Promise.all(fakes);
      const rivals = await Promise.all(
        pods.map((pod, i) => add(lab, pod, [i % 2 ? WEB[0] : { ...WEB[0], hostIP: BRIDGE.v4 }] as Mapping[])),
      );
      // Ports on one address exclude those on all, not each other on different ones: here it is the same one.
      expect(rivals.filter(({ exitCode }) => exitCode === 0)).toHaveLength(1);
      await Promise.all(pods.map(pod => del(lab, pod)));
      const own = (i: number) => [{ hostPort: 9000 + i, containerPort: 80 }];
      const added = await Promise.all(pods.map((pod, i) => add(lab, pod, own(i))));
      expect(added.map(({ exitCode, stdout }) => (exitCode ? stdout : ''))).toEqual(Array(8).fill(''));
      expect((await keysOf(lab)).wildcard4).toHaveLength(8);
      await Promise.all(pods.map(pod => del(lab, pod)));
      expect(await elementsOf(lab)).toEqual({});
    });

    test('DEL and CHECK handle hundreds of mappings', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const many = Array.from({ length: 300 }, (_, i) => ({ hostPort: 10_000 + i, containerPort: i + 1 }));
      expect((await add(lab, pod, many)).exitCode).toBe(0);
      expect((await keysOf(lab)).wildcard6).toHaveLength(300);
      expect((await check(lab, pod, many)).exitCode).toBe(0);
      expect((await del(lab, pod)).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual({});
    });

    test('DEL needs only the name of the attachment, and may be repeated or come without ADD', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      expect((await del(lab, pod)).exitCode).toBe(0);
      await add(lab, pod, WEB);
      await add(lab, neighbour, [{ hostPort: 7000, containerPort: 80 }]);
      expect((await del(lab, { ...pod, path: '' })).exitCode).toBe(0);
      expect((await keysOf(lab)).wildcard4).toEqual([['tcp', 7000]]);
      expect((await del(lab, pod)).exitCode).toBe(0);
      const bad = {
        runtimeConfig: { portMappings: [{ hostPort: 0 }] },
        backend: 'nope',
        conditionsV4: ['x'],
      };
      expect((await del(lab, neighbour, { conf: bad })).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual({});
    });

    test('DEL of one network leaves the same container in another alone', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await add(lab, pod, WEB, { network: 'one' });
      await add(lab, { ...pod, v4: neighbour.v4, v6: neighbour.v6 }, [{ hostPort: 22, containerPort: 22 }], {
        network: 'two',
      });
      await del(lab, pod, { network: 'one' });
      expect((await keysOf(lab)).wildcard4).toEqual([['tcp', 22]]);
    });

    test.each(FAMILIES)('DEL deletes UDP flows over IP%s, so that the next pod gets them', async family => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      for (const one of [pod, neighbour]) await startServer(lab, one, { protocol: 'udp', port: 80 });
      const ask = () => askUdp(lab, outside, outside.hostAddress[family]);
      await add(lab, pod, WEB);
      expect(await ask()).toBe(true);
      await lab.ip(lab.host, 'link', 'set', 'pod2', 'down');
      expect(await ask()).toBe(false);
      await del(lab, pod);
      await add(lab, neighbour, WEB);
      expect(await ask()).toBe(true);
    });

    test('GC ends the UDP flows of what it releases', async () => {
      const { lab, pod, outside } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'udp', port: 80 });
      const ask = () => askUdp(lab, outside, outside.hostAddress.v4);
      await add(lab, pod, WEB);
      expect(await ask()).toBe(true);
      expect((await gc(lab, [])).exitCode).toBe(0);
      expect(await ask()).toBe(false);
    });

    test.each(FAMILIES)('DEL and ADD find UDP flows over IP%s among many', async family => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      for (const one of [pod, neighbour]) await startServer(lab, one, { protocol: 'udp', port: 80 });
      const ask = () => askUdp(lab, outside, outside.hostAddress[family]);
      await add(lab, pod, WEB);
      // Only from now on does the kernel remember any.
      await makeFlows(lab, outside, outside.hostAddress[family], 300);
      expect(await ask()).toBe(true);
      await del(lab, pod);
      expect(await ask()).toBe(false);
      await add(lab, neighbour, [...WEB, { hostPort: 8081, containerPort: 80, protocol: 'udp' }]);
      expect(await ask()).toBe(true);
      const count = await lab.sysctl(lab.host, 'net/netfilter/nf_conntrack_count');
      expect(Number(count)).toBeGreaterThan(250);
    });

    test.each(FAMILIES)('ADD deletes UDP flows over IP%s that began before the mapping', async family => {
      const { lab, pod, outside } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'udp', port: 80 });
      const ask = () => askUdp(lab, outside, outside.hostAddress[family]);
      const own = await startServer(lab, lab.host, { protocol: 'udp', port: 8080 });
      expect(await ask()).toBe(true);
      await own.stop();
      expect(await ask()).toBe(false);
      await add(lab, pod, WEB);
      expect(await ask()).toBe(true);
    });

    test('ADD keeps UDP flows with the right target, and those through the host to the same port elsewhere', async () => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'udp', port: 80 });
      await startServer(lab, neighbour, { protocol: 'udp', port: 8080 });
      await add(lab, pod, WEB);
      expect(await askUdp(lab, outside, outside.hostAddress.v4)).toBe(true);
      expect(await askUdp(lab, outside, neighbour.v4)).toBe(true);
      // From here on only flows that are still remembered get through.
      await load(
        lab,
        'add table inet old',
        'add chain inet old forward { type filter hook forward priority 0; }',
        'add rule inet old forward ct state new drop',
      );
      await add(lab, pod, [...WEB, { hostPort: 8081, containerPort: 80, protocol: 'udp' }]);
      expect(await askUdp(lab, outside, outside.hostAddress.v4)).toBe(true);
      expect(await askUdp(lab, outside, neighbour.v4)).toBe(true);
      await del(lab, pod);
      expect(await askUdp(lab, outside, neighbour.v4)).toBe(true);
    });

    test('CHECK names what is missing or was changed', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const mappings = [...WEB, { hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '10.201.0.1' }];
      const expectProblem = async (command: string, words: string) => {
        await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
        expect((await add(lab, pod, mappings)).exitCode).toBe(0);
        expect((await check(lab, pod, mappings)).exitCode).toBe(0);
        expect((await lab.run(lab.host, ['nft', ...command.split(' ')])).exitCode).toBe(0);
        const checked = await check(lab, pod, mappings);
        expect(checked).toMatchObject({ exitCode: 1, error: { code: 999 } });
        expect(checked.error?.msg).toContain(words);
      };
      const t = 'inet catena_portmap';
      await expectProblem(
        `delete element ${t} wildcard4 { tcp . 8080 }`,
        '{ 6 . 8080 } of "wildcard4" is missing',
      );
      await expectProblem(
        `delete element ${t} specific4 { 10.201.0.1 . udp . 53 }`,
        '"specific4" is missing',
      );
      await expectProblem(`delete element ${t} hostips4 { 10.201.0.1 }`, '"hostips4" is missing');
      await expectProblem(`delete element ${t} snat6 { ${pod.v6} }`, `{ ${pod.v6} } of "snat6" is missing`);
      await expectProblem(
        `delete element ${t} hairpin4 { 10.9.0.0 . ${pod.v4} }`,
        'of "hairpin4" is missing',
      );
      await expectProblem(`flush chain ${t} postrouting`, 'rules of chain "postrouting" are not ours');
      await expectProblem(`insert rule ${t} hostports accept`, 'rules of chain "hostports" are not ours');
      await expectProblem(`flush chain ${t} snat4_24`, 'rules of chain "snat4_24" are not ours');
      await expectProblem(`delete table ${t}`, 'is missing');
      await add(lab, pod, mappings);
      await lab.sysctl(lab.host, 'net/ipv4/conf/br0/route_localnet', 0);
      expect((await check(lab, pod, mappings)).error?.msg).toContain('route_localnet');
    });

    test('CHECK reports a port with another target or another owner', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      await add(lab, pod, WEB);
      const replace = async (element: string) => {
        await load(
          lab,
          'delete element inet catena_portmap wildcard4 { tcp . 8080 }',
          `add element inet catena_portmap wildcard4 { tcp . 8080 ${element} }`,
        );
        return (await check(lab, pod, WEB)).error?.msg;
      };
      expect(await replace(`comment "catena:podnet/${pod.id}/eth0" : 10.9.0.77 . 80`)).toContain(
        'leads elsewhere',
      );
      expect(await replace(`comment "me" : ${pod.v4} . 80`)).toContain('belongs to "me"');
    });

    test('ADD after the rule set was flushed, in whole or in part, restores the skeleton', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      for (const flush of [
        'flush ruleset',
        'flush table inet catena_portmap',
        'flush chain inet catena_portmap output',
      ]) {
        await add(lab, neighbour, [{ hostPort: 22, containerPort: 22 }]);
        await lab.run(lab.host, ['nft', ...flush.split(' ')]);
        expect((await add(lab, pod, WEB)).exitCode).toBe(0);
        expect((await check(lab, pod, WEB)).exitCode).toBe(0);
      }
    });

    test('GC removes invalid attachments, of its own network only', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const third = await addPod(lab, 4);
      await add(lab, pod, WEB);
      await add(lab, neighbour, [{ hostPort: 22, containerPort: 22, hostIP: BRIDGE.v4 }]);
      await add(lab, third, [{ hostPort: 23, containerPort: 23 }], { network: 'other' });
      const before = await elementsOf(lab);
      expect((await gc(lab, [pod, neighbour])).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual(before);
      expect((await gc(lab, [pod])).exitCode).toBe(0);
      const keys = await keysOf(lab);
      expect(keys.wildcard4?.toSorted()).toEqual([
        ['tcp', 23],
        ['tcp', 8080],
        ['udp', 8080],
      ]);
      expect(keys.specific4).toBeUndefined();
      expect(keys.hostips4).toBeUndefined();
      expect((await check(lab, pod, WEB)).exitCode).toBe(0);
    });

    test('invalid input is refused before anything is changed', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const web = { hostPort: 80, containerPort: 80 };
      const cases: [Mapping[], object, number, string][] = [
        [[{ ...web, hostPort: 0 }], {}, 7, 'hostPort'],
        [[web, { ...web, containerPort: 81 }], {}, 7, '80 and 81'],
        [[web], { backend: 'nftables', conditionsV4: ['-s', '10.0.0.0/8'] }, 2, 'iptables syntax'],
      ];
      for (const [mappings, conf, code, words] of cases) {
        const refused = await add(lab, pod, mappings, { conf });
        expect(refused).toMatchObject({ exitCode: 1, error: { code } });
        expect(refused.error?.msg).toContain(words);
      }
      const alone = await add(lab, pod, [web], { prevResult: undefined });
      expect(alone).toMatchObject({ exitCode: 1, error: { code: 7 } });
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
    });

    test('STATUS lets the kernel check the rules and leaves nothing', async () => {
      const { lab } = await podsOnBridge(createLab);
      expect(await status(lab)).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
      await load(
        lab,
        'add table inet catena_portmap',
        'add set inet catena_portmap wildcard4 { type ipv4_addr; }',
      );
      expect(await status(lab)).toMatchObject({ exitCode: 1, error: { code: 50 } });
    });

    testNeeding(
      'STATUS fails with code 50 if no sysctl can be set, unless none is needed',
      async () => {
        const lab = await createLab();
        const readOnly =
          'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$0"';
        const run = (conf: object) =>
          lab.run(lab.host, ['unshare', '-m', 'sh', '-c', readOnly, `${BIN_DIR}/portmap`], {
            env: { CNI_COMMAND: 'STATUS', CNI_PATH: BIN_DIR, PATH: process.env.PATH ?? '' },
            stdin: JSON.stringify(confOf({ conf })),
          });
        const { stdout } = await run({});
        expect(JSON.parse(stdout)).toMatchObject({
          code: 50,
          msg: expect.stringContaining('route_localnet'),
        });
        expect(await run({ snat: false })).toMatchObject({ exitCode: 0, stdout: '' });
      },
      requires('unshare', 'mount'),
    );

    testNeeding(
      'STATUS without the right to change the packet filter is code 50',
      async () => {
        const lab = await createLab();
        const argv = ['setpriv', '--reuid', '65534', '--clear-groups', `${BIN_DIR}/portmap`];
        const { stdout, exitCode } = await lab.run(lab.host, argv, {
          env: { CNI_COMMAND: 'STATUS', CNI_PATH: BIN_DIR },
          stdin: JSON.stringify(confOf({})),
        });
        expect(exitCode).toBe(1);
        expect(JSON.parse(stdout)).toMatchObject({ code: 50, msg: expect.stringContaining('EPERM') });
      },
      requires('setpriv'),
    );
  },
  requires('ip', 'nft'),
);

/** Commands of nft, as one transaction. */
async function load(lab: Lab, ...commands: string[]): Promise<void> {
  const stdin = commands.map(command => `${command}\n`).join('');
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0 });
}

function confOf(
  { version = LATEST_SPEC_VERSION, network = 'podnet', conf }: Call,
  more: object = {},
): object {
  return { cniVersion: version, name: network, type: 'portmap', ...more, ...conf };
}

function add(lab: Lab, pod: Pod, portMappings: Mapping[], call: Call = {}, env = {}): Promise<PluginReply> {
  const prevResult = 'prevResult' in call ? call.prevResult : resultOf(pod, call.version);
  const conf = confOf(call, { runtimeConfig: { portMappings } });
  return lab.plugin('portmap', { command: 'ADD', container: pod, conf, prevResult, env });
}

function check(lab: Lab, pod: Pod, portMappings: Mapping[], call: Call = {}): Promise<PluginReply> {
  const prevResult = call.prevResult ?? resultOf(pod, call.version);
  const conf = confOf(call, { runtimeConfig: { portMappings } });
  return lab.plugin('portmap', { command: 'CHECK', container: pod, conf, prevResult });
}

function del(lab: Lab, pod: Pod, call: Call = {}): Promise<PluginReply> {
  return lab.plugin('portmap', { command: 'DEL', container: pod, conf: confOf(call) });
}

function gc(lab: Lab, valid: Pod[]): Promise<PluginReply> {
  const attachments = valid.map(({ id }) => ({ containerID: id, ifname: 'eth0' }));
  const conf = confOf({}, { 'cni.dev/valid-attachments': attachments });
  return lab.plugin('portmap', { command: 'GC', conf });
}

function status(lab: Lab): Promise<PluginReply> {
  return lab.plugin('portmap', { command: 'STATUS', conf: confOf({}) });
}

/** The elements of every set that has some. */
async function elementsOf(lab: Lab): Promise<Record<string, Row[]>> {
  const rows = await lab.nft(lab.host, 'list', 'table', 'inet', 'catena_portmap');
  const sets = rows.flatMap(row => row.map ?? row.set ?? []).filter(set => set.elem);
  return Object.fromEntries(sets.map(set => [set.name, set.elem]));
}

/** Only their keys. */
async function keysOf(lab: Lab): Promise<Record<string, unknown[]>> {
  const sets = Object.entries(await elementsOf(lab));
  const keyOf = (row: Row) => {
    const key = Array.isArray(row) ? row[0] : row;
    const value = key.elem?.val ?? key;
    return value.concat ?? value;
  };
  return Object.fromEntries(sets.map(([name, rows]) => [name, rows.map(keyOf).sort(byText)]));
}

function byText(a: unknown, b: unknown): number {
  return JSON.stringify(a) < JSON.stringify(b) ? -1 : 1;
}

function elem(comment: string, key: unknown): Row {
  return { elem: { val: Array.isArray(key) ? { concat: key } : key, comment } };
}

/** The state of the host but for our table, once it no longer changes: devices come up a moment after their creation. */
async function settledDump(lab: Lab): Promise<Dump> {
  const dump = () => lab.dump(lab.host, { ignoreTables: ['inet catena_portmap'] });
  let last = await dump();
  for (let attempt = 0; attempt < 50; attempt++) {
    await Bun.sleep(100);
    const next = await dump();
    if (Bun.deepEquals(next, last)) break;
    last = next;
  }
  return last;
}

/** Sends a datagram to many ports of which none answers. */
async function makeFlows(lab: Lab, from: Namespace, address: string, count: number): Promise<void> {
  const script = `
    const socket = require('node:dgram').createSocket('${address.includes(':') ? 'udp6' : 'udp4'}');
    socket.on('error', () => {});
    socket.bind(0, async () => {
      for (let i = 0; i < ${count}; i++) await new Promise(sent => socket.send('x', 20000 + i, '${address}', sent));
      process.exit(0);
    });`;
  expect((await lab.run(from, [process.execPath, '-e', script])).exitCode).toBe(0);
}
