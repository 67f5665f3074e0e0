// Do the helpers that every kernel test relies on do what they say?

import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { ping as pingFrom } from '../../src/lab/traffic.ts';
import { parseIp } from '../../src/net/ip.ts';
import { closeNetns, openNetns } from '../../src/sys/netns.ts';
import { ownLeftovers, sweepLeftovers } from '../helpers/namespace.ts';
import { type Lab, useLabs, withHost } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import {
  describeInOrder,
  requires,
  requiresLinkKind,
  requiresReference,
  testNeeding,
} from '../helpers/skip.ts';
import { echo, measureRate, ping, startServer, steadily } from '../helpers/traffic.ts';

describeInOrder(
  'helpers',
  () => {
    let previous: Lab | undefined;

    describe('a group of tests', () => {
      const createLab = useLabs();
      test('makes labs', async () => {
        previous = await createLab();
        expect(fs.existsSync(previous.host.path)).toBe(true);
      });
    });

    test.serial('useLabs() removes namespaces and directories at the end of the group', () => {
      expect(previous).toBeDefined();
      expect(fs.existsSync(previous?.host.path ?? '')).toBe(false);
      expect(fs.existsSync(previous?.tmp ?? '')).toBe(false);
    });

    test("the lab's ping waits for a source address that is tentative", async () => {
      await withHost(async lab => {
        const outside = await lab.outside();
        await lab.batch(outside, 'address add fd00:77::1/64 dev uplink nodad');
        await lab.batch(lab.host, 'address add fd00:77::2/64 dev outside0');
        const netns = openNetns(lab.host.path);
        const took = pingFrom(netns, parseIp('fd00:77::1'), 0, 10_000, parseIp('fd00:77::2'));
        closeNetns(netns);
        expect(took).toBeNumber();
      });
    });

    test('withHost() gives namespaces that a veth connects', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const { host } = lab;
        await lab.ip(host, 'link', 'add', 'v0', 'type', 'veth', 'peer', 'eth0', 'netns', container.name);
        await lab.ip(host, 'addr', 'add', '10.77.0.1/24', 'dev', 'v0');
        await lab.ip(host, 'link', 'set', 'v0', 'up');
        await lab.ip(container, 'addr', 'add', '10.77.0.2/24', 'dev', 'eth0');
        await lab.ip(container, 'link', 'set', 'eth0', 'up');
        expect(await ping(lab, host, '10.77.0.2')).toBe(true);
        expect(await ping(lab, container, '10.77.0.1')).toBe(true);
        const [eth0] = await lab.ip(container, 'addr', 'show', 'dev', 'eth0');
        expect(eth0).toMatchObject({ ifname: 'eth0', linkinfo: { info_kind: 'veth' } });
      });
    });

    test('withHost() removes everything when the body throws, running programs included', async () => {
      let path = '';
      let pid = 0;
      const failing = withHost(async lab => {
        path = lab.host.path;
        pid = lab.start(lab.host, ['sleep', '600']).pid;
        throw new Error('on purpose');
      });
      await expect(failing).rejects.toThrow('on purpose');
      expect(fs.existsSync(path)).toBe(false);
      expect(fs.existsSync(`/proc/${pid}/exe`)).toBe(false);
    });

    test('withHost() starts programs inside the namespace without a program in between', async () => {
      const script = ['sh', '-c', 'readlink /proc/self/ns/net; cat /proc/$PPID/comm; cat'];
      const own = (place: string) => fs.readlinkSync(`/proc/${place}/ns/net`);
      const before = own('thread-self');
      await withHost(
        async lab => {
          const { ino } = fs.statSync(lab.host.path);
          const { stdout } = await lab.run(lab.host, script, { stdin: 'said' });
          const [namespace, parent, said] = stdout.split('\n');
          expect([namespace, said]).toEqual([`net:[${ino}]`, 'said']);
          expect(parent).toBe(fs.readFileSync('/proc/self/comm', 'utf8').trim());
        },
        { directly: true },
      );
      expect([own('thread-self'), own('self')]).toEqual([before, before]);
    });

    test('sweepLeftovers() removes what a dead process left', async () => {
      const dead = Bun.spawnSync(['true']).pid;
      Bun.spawnSync(['ip', 'netns', 'add', `cat-${dead}-1h`]);
      await sweepLeftovers();
      expect(fs.existsSync(`/run/netns/cat-${dead}-1h`)).toBe(false);
    });

    test('outside() reaches the host by IPv4 and IPv6, TCP and UDP', async () => {
      await withHost(async lab => {
        const outside = await lab.outside();
        expect(await ping(lab, outside, outside.hostAddress.v4)).toBe(true);
        expect(await ping(lab, outside, outside.hostAddress.v6)).toBe(true);
        const tcp = await startServer(lab, lab.host, { protocol: 'tcp', port: 8080 });
        await startServer(lab, lab.host, { protocol: 'udp', port: 8080 });
        for (const [version, address] of Object.entries(outside.hostAddress)) {
          for (const protocol of ['tcp', 'udp'] as const) {
            const reply = await echo(lab, outside, { protocol, address, port: 8080, text: 'ping' });
            expect(reply).toMatchObject({
              text: 'ping',
              peer: version === 'v4' ? '10.201.0.2' : 'fd00:201::2',
            });
          }
        }
        await tcp.stop();
        const { v4: address } = outside.hostAddress;
        expect(await echo(lab, outside, { protocol: 'tcp', address, port: 8080 })).toBeUndefined();
      });
    });

    test('measureRate() sees a limit in both directions', async () => {
      await withHost(async lab => {
        const outside = await lab.outside();
        const limit = ['root', 'tbf', 'rate', '40mbit', 'burst', '100kb', 'latency', '50ms'];
        await lab.tc(outside, 'qdisc', 'add', 'dev', 'uplink', ...limit);
        await lab.tc(lab.host, 'qdisc', 'add', 'dev', 'outside0', ...limit);
        const up = { from: outside, to: lab.host, address: outside.hostAddress.v4, seconds: 1 };
        const down = { from: lab.host, to: outside, address: outside.hostAddress.v4, seconds: 1 };
        for (const way of [up, { ...down, connect: 'receiver' as const }]) {
          const bytes = await steadily(
            () => measureRate(lab, way),
            value => value * 8 > 40e6 * 0.8 && value * 8 < 40e6 * 1.2,
          );
          expect(bytes * 8).toBeGreaterThan(40e6 * 0.8);
          expect(bytes * 8).toBeLessThan(40e6 * 1.2);
        }
      });
    });

    test('dump() is equal after a change was undone, and differs before', async () => {
      await withHost(async lab => {
        const before = await lab.dump(lab.host);
        await lab.ip(lab.host, 'link', 'add', 'b0', 'type', 'bridge');
        await lab.ip(lab.host, 'addr', 'add', '10.9.0.1/24', 'dev', 'b0');
        await lab.ip(lab.host, 'link', 'set', 'b0', 'up');
        await lab.ip(lab.host, 'rule', 'add', 'from', '10.9.0.0/24', 'table', '77');
        await lab.tc(lab.host, 'qdisc', 'add', 'dev', 'b0', 'ingress');
        await lab.nft(lab.host, 'add', 'table', 'inet', 'probe');
        await lab.nft(lab.host, 'add', 'table', 'inet', 'kept');
        const during = await lab.dump(lab.host);
        for (const part of ['links', 'addresses', 'routes', 'rules', 'nft', 'qdiscs'] as const) {
          expect({ part, length: during[part].length }).not.toEqual({ part, length: before[part].length });
        }
        await lab.ip(lab.host, 'link', 'delete', 'b0');
        await lab.ip(lab.host, 'rule', 'delete', 'table', '77');
        await lab.nft(lab.host, 'delete', 'table', 'inet', 'probe');
        expect(await lab.dump(lab.host, { ignoreTables: ['inet kept'] })).toEqual(before);
      });
    });

    test('dump() includes filters of every qdisc', async () => {
      await withHost(async lab => {
        const { host } = lab;
        await lab.ip(host, 'link', 'add', 'v0', 'type', 'veth', 'peer', 'v1');
        await lab.tc(host, 'qdisc', 'add', 'dev', 'v0', 'ingress');
        const all = ['u32', 'match', 'u32', '0', '0', 'action', 'mirred', 'egress', 'redirect', 'dev', 'v1'];
        await lab.tc(host, 'filter', 'add', 'dev', 'v0', 'ingress', 'protocol', 'all', ...all);
        const { filters } = await lab.dump(host);
        expect(filters).toContainEqual(expect.objectContaining({ dev: 'v0', kind: 'u32' }));
      });
    });

    test('sysctl() reads and writes inside one namespace only', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.sysctl(lab.host, 'net.ipv4.conf.all.log_martians', 1);
        expect(await lab.sysctl(lab.host, 'net/ipv4/conf/all/log_martians')).toBe('1');
        expect(await lab.sysctl(container, 'net/ipv4/conf/all/log_martians')).toBe('0');
      });
    });

    test('run() ends a program that outlives its deadline', async () => {
      await withHost(async lab => {
        const late = lab.run(lab.host, ['sleep', '600'], { timeoutMs: 100 });
        await expect(late).rejects.toThrow('Cannot finish "nsenter');
      });
    });

    testNeeding(
      'plugin() calls an executable as a runtime does',
      async () => {
        await withHost(async lab => {
          const container = await lab.container();
          const conf = { cniVersion: '1.0.0', name: 'lo', type: 'loopback' };
          const call = { conf, container, ifname: 'lo', binDir: REFERENCE_BIN_DIR };
          const added = await lab.plugin('loopback', { ...call, command: 'ADD' });
          expect(added).toMatchObject({ exitCode: 0, result: { cniVersion: '1.0.0' } });
          const [lo] = await lab.ip(container, 'link', 'show', 'lo');
          expect(lo?.flags).toContain('UP');
          const broken = await lab.plugin('loopback', { ...call, command: 'ADD', conf: '{' });
          expect(broken).toMatchObject({ exitCode: 1, error: { code: expect.any(Number) } });
        });
      },
      requiresReference('loopback'),
    );

    test('requiresLinkKind() tells kinds that the kernel has from those it lacks', () => {
      expect(requiresLinkKind('bridge')).toBeUndefined();
      expect(requiresLinkKind('no-such-kind')).toBe('needs a kernel with device kind "no-such-kind"');
    });

    afterAll(() => {
      expect(ownLeftovers()).toEqual([]);
    });
  },
  requires('ip', 'tc', 'nft', 'ping'),
);
