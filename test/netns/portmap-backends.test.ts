// Do host ports belong to one container only, whichever packet filter forwards them and whichever plugin wrote the rules?

import { afterEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Lab, useLabs } from '../helpers/netns.ts';
import { type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { answers, askUdp, BRIDGE, fakePod, type Pod, podsOnBridge, resultOf } from '../helpers/pods.ts';
import { describeInOrder, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { startServer } from '../helpers/traffic.ts';

interface Call {
  readonly backend?: string;
  readonly ifname?: string;
  readonly conf?: object;
  readonly ports?: object[];
  readonly reference?: boolean;
  readonly env?: Record<string, string>;
}

const BACKENDS = ['nftables', 'iptables'] as const;
const PROTOCOLS = ['tcp', 'udp'] as const;
const WEB = PROTOCOLS.map(protocol => ({ hostPort: 8080, containerPort: 80, protocol }));
const ON_ONE = [{ hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '10.201.0.1' }];

describeInOrder(
  'portmap with both packet filters',
  () => {
    const createLab = useLabs(afterEach);

    describe.each(BACKENDS)('a port that %s holds', backend => {
      const other = backend === 'nftables' ? 'iptables' : 'nftables';

      test(`is refused to ${other}, until DEL`, async () => {
        const { lab, pod, neighbour } = await podsOnBridge(createLab);
        await call(lab, 'ADD', pod, { backend, ports: [...WEB, ...ON_ONE] });
        const before = await rules(lab);
        for (const [ports, held] of [
          [WEB.slice(0, 1), '8080/tcp'],
          [[{ ...WEB[0], hostIP: '127.0.0.1' }], '8080/tcp'],
          [ON_ONE, '10.201.0.1:53/udp'],
          [[{ ...ON_ONE[0], hostIP: '0.0.0.0' }], '10.201.0.1:53/udp'],
        ] as const) {
          const refused = await call(lab, 'ADD', neighbour, { backend: other, ports: [...ports] });
          expect(refused).toMatchObject({ exitCode: 1, error: { code: 100 } });
          expect(refused.error?.msg).toEndWith(`container "${pod.id}" of network "podnet" holds ${held}`);
          expect(await rules(lab)).toEqual(before);
        }
        const elsewhere = [{ ...ON_ONE[0], hostIP: BRIDGE.v4 }];
        expect(await call(lab, 'ADD', neighbour, { backend: other, ports: elsewhere })).toMatchObject({
          exitCode: 0,
        });
        await call(lab, 'DEL', pod);
        expect(await call(lab, 'ADD', neighbour, { backend: other })).toMatchObject({ exitCode: 0 });
      });

      test(`goes to ${other} with another ADD of the same attachment`, async () => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        await startServer(lab, pod, { protocol: 'tcp', port: 80 });
        await call(lab, 'ADD', pod, { backend });
        expect(await call(lab, 'ADD', pod, { backend: other })).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'CHECK', pod, { backend: other })).toMatchObject({ exitCode: 0 });
        expect((await saved(lab)).includes('CNI-DN-')).toBe(other === 'iptables');
        expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(true);
        await call(lab, 'DEL', pod, { backend });
        expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(false);
      });

      test('passes to the new owner of the pod’s address', async () => {
        const { lab, pod } = await podsOnBridge(createLab);
        await call(lab, 'ADD', pod, { backend });
        await lab.ip(pod, 'addr', 'flush', 'dev', 'eth0');
        const heir = await fakePod(lab, 2);
        expect(await call(lab, 'ADD', heir, { backend: other })).toMatchObject({ exitCode: 0 });
        expect((await saved(lab)).includes('CNI-DN-')).toBe(other === 'iptables');
        expect(await call(lab, 'DEL', pod, {})).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'CHECK', heir, { backend: other })).toMatchObject({ exitCode: 0 });
      });
    });

    describe.each([
      { theirs: 'nftables' },
      { theirs: 'iptables' },
      { theirs: 'reference' },
      { theirs: "reference's table" },
    ])('what $theirs forwards to a container that is gone without DEL', ({ theirs }) => {
      test.each(BACKENDS)('is taken by a living one with %s, with its counts', async backend => {
        const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
        const isOurs = theirs === 'nftables' || theirs === 'iptables';
        if (theirs === 'reference' && requiresReference('portmap')) return;
        const ports = [...WEB, ...ON_ONE];
        if (theirs === "reference's table") {
          await load(
            lab,
            'add table ip cni_hostport',
            'add chain ip cni_hostport hostports { type nat hook prerouting priority -100; }',
            `add rule ip cni_hostport hostports tcp dport 8080 dnat to ${pod.v4}:80 comment "${pod.id}"`,
          );
        } else {
          const how = isOurs ? { backend: theirs } : { reference: true };
          expect(await call(lab, 'ADD', pod, { ...how, ports })).toMatchObject({ exitCode: 0 });
        }
        expect((await call(lab, 'ADD', neighbour, { backend, ports })).error).toMatchObject({ code: 100 });
        await lab.remove(pod);
        await startServer(lab, neighbour, { protocol: 'tcp', port: 80 });
        const added = await call(lab, 'ADD', neighbour, { backend, ports });
        expect(added).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'CHECK', neighbour, { backend, ports })).toMatchObject({ exitCode: 0 });
        expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(true);
        const left = `${await rules(lab)}${await saved(lab)}`;
        expect(left).not.toContain(pod.id);
        expect(left).not.toContain(pod.v4);
        // A late DEL takes nothing from the new holder.
        if (isOurs) expect((await call(lab, 'DEL', pod)).exitCode).toBe(0);
        expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(true);
      });
    });

    test.each(BACKENDS)(
      'a container whose address no interface shows keeps its port, with %s',
      async backend => {
        const { lab, pod, neighbour } = await podsOnBridge(createLab);
        expect(await call(lab, 'ADD', pod, { backend })).toMatchObject({ exitCode: 0 });
        // gVisor takes it, a virtual machine has it itself; libcni's record tells where the container is.
        await lab.ip(pod, 'addr', 'flush', 'dev', 'eth0');
        fs.mkdirSync(`${lab.tmp}/cni/results`, { recursive: true });
        const record = JSON.stringify({ kind: 'cniCacheV1', netns: pod.path });
        fs.writeFileSync(`${lab.tmp}/cni/results/podnet-${pod.id}-eth0`, record);
        expect((await call(lab, 'ADD', neighbour, { backend })).error).toMatchObject({ code: 100 });
        await lab.remove(pod);
        expect(await call(lab, 'ADD', neighbour, { backend })).toMatchObject({ exitCode: 0 });
      },
    );

    test.each(BACKENDS)('a port with conditions is taken from the dead as well, with %s', async backend => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const words = backend === 'nftables' ? ['ip saddr 10.201.0.0/16'] : ['-s', '10.201.0.0/16'];
      const how = { backend, conf: { conditionsV4: words, conditionsV6: [] } };
      expect(await call(lab, 'ADD', pod, how)).toMatchObject({ exitCode: 0 });
      expect((await call(lab, 'ADD', neighbour, how)).error).toMatchObject({ code: 100 });
      await lab.remove(pod);
      expect(await call(lab, 'ADD', neighbour, how)).toMatchObject({ exitCode: 0 });
      expect(await call(lab, 'CHECK', neighbour, how)).toMatchObject({ exitCode: 0 });
      expect(`${await rules(lab)}${await saved(lab)}`).not.toContain(pod.id);
      await call(lab, 'DEL', neighbour, how);
      expect(await elementsLeft(lab)).toEqual([]);
    });

    test('of many ADDs at once, with either packet filter, one gets the port', async () => {
      const { lab } = await podsOnBridge(createLab);
      const pods = await Promise.all(Array.from({ length: 8 }, (_, i) => fakePod(lab, 10 + i)));
      const added = await Promise.all(
        pods.map((pod, i) => call(lab, 'ADD', pod, { backend: BACKENDS[i % 2] ?? '' })),
      );
      expect(added.filter(({ exitCode }) => exitCode === 0)).toHaveLength(1);
      expect(added.filter(({ error }) => error?.code === 100)).toHaveLength(7);
      await Promise.all(pods.map(pod => call(lab, 'DEL', pod)));
      expect(await saved(lab)).not.toContain('CNI-DN-');
      expect(await elementsLeft(lab)).toEqual([]);
    });

    test('of many ADDs at once with iptables one gets the port, time and again', async () => {
      const { lab } = await podsOnBridge(createLab);
      const pods = await Promise.all(Array.from({ length: 4 }, (_, i) => fakePod(lab, 10 + i)));
      for (let round = 0; round < 4; round++) {
        const added = await Promise.all(pods.map(pod => call(lab, 'ADD', pod, { backend: 'iptables' })));
        expect(added.filter(({ exitCode }) => exitCode === 0)).toHaveLength(1);
        expect((await saved(lab)).match(/:CNI-DN-/g)).toHaveLength(2);
        await Promise.all(pods.map(pod => call(lab, 'DEL', pod)));
      }
    });

    test('a claim of iptables gives way when its rules are gone', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      for (const backend of BACKENDS) {
        await call(lab, 'ADD', pod, { backend: 'iptables' });
        for (const tool of ['iptables', 'ip6tables']) {
          await lab.run(lab.host, [tool, '-t', 'nat', '-F']);
          await lab.run(lab.host, [tool, '-t', 'nat', '-X']);
        }
        expect(await call(lab, 'ADD', neighbour, { backend })).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'CHECK', neighbour, { backend })).toMatchObject({ exitCode: 0 });
        await call(lab, 'DEL', neighbour);
        await call(lab, 'DEL', pod);
        expect(await elementsLeft(lab)).toEqual([]);
      }
    });

    testNeeding(
      'a port of a container of the reference is refused, unless it has conditions or its own address',
      async () => {
        const { lab, pod, neighbour } = await podsOnBridge(createLab);
        await call(lab, 'ADD', pod, { reference: true, ports: [...WEB, ...ON_ONE] });
        for (const backend of BACKENDS) {
          const refused = await call(lab, 'ADD', neighbour, { backend });
          expect(refused).toMatchObject({ exitCode: 1, error: { code: 100 } });
          expect(refused.error?.msg).toEndWith(`container "${pod.id}" of network "podnet" holds 8080/tcp`);
          const onAll = [{ ...ON_ONE[0], hostIP: '' }];
          const also = await call(lab, 'ADD', neighbour, { backend, ports: onAll });
          expect(also.error?.msg).toEndWith('holds 10.201.0.1:53/udp');
          const free = [
            { ...ON_ONE[0], hostIP: BRIDGE.v4 },
            { hostPort: 8081, containerPort: 80 },
          ];
          expect(await call(lab, 'ADD', neighbour, { backend, ports: free })).toMatchObject({ exitCode: 0 });
          await call(lab, 'DEL', neighbour);
        }
        const heir = await fakePod(lab, 2);
        expect(await call(lab, 'ADD', heir, {})).toMatchObject({ error: { code: 101 } });
        await lab.ip(pod, 'addr', 'flush', 'dev', 'eth0');
        expect(await call(lab, 'ADD', heir, {})).toMatchObject({ exitCode: 0 });
      },
      requiresReference('portmap'),
    );

    testNeeding(
      'a port of a container of the reference in iptables-legacy is refused until DEL',
      async () => {
        const { lab, pod, neighbour } = await podsOnBridge(createLab);
        const env = { PATH: legacyPath(lab) };
        await call(lab, 'ADD', pod, { reference: true, ports: [...WEB, ...ON_ONE], env });
        for (const backend of BACKENDS) {
          const refused = await call(lab, 'ADD', neighbour, { backend });
          expect(refused.error?.msg).toEndWith(`container "${pod.id}" of network "podnet" holds 8080/tcp`);
          const onAll = await call(lab, 'ADD', neighbour, { backend, ports: [{ ...ON_ONE[0], hostIP: '' }] });
          expect(onAll.error?.msg).toEndWith('holds 10.201.0.1:53/udp');
        }
        await call(lab, 'DEL', pod);
        expect(await call(lab, 'ADD', neighbour, {})).toMatchObject({ exitCode: 0 });
      },
      requiresReference('portmap'),
      requires('iptables-legacy-restore'),
    );

    for (const tool of ['iptables', 'iptables-legacy']) {
      testNeeding(
        `a rule in ${tool} that excludes a port, or an address, does not hold it`,
        async () => {
          const { lab, neighbour } = await podsOnBridge(createLab);
          const dnat = `-j DNAT --to-destination 10.9.0.99:80`;
          for (const rule of [
            '-N CNI-HOSTPORT-DNAT',
            '-N CNI-DN-other',
            '-A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-other -m multiport ! --dports 8080',
            '-A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-other -m tcp --dport 8080 --sport 1000',
            '-A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-other -m multiport --dports 8080,8081',
            '-A CNI-HOSTPORT-DNAT -p udp -j CNI-DN-other -m multiport --dports 53',
            `-A CNI-DN-other -p tcp ! --dport 8080 ${dnat}`,
            `-A CNI-DN-other -p tcp --sport 1000 --dport 8080 ${dnat}`,
            `-A CNI-DN-other -p tcp --dport 8081 ${dnat}`,
            `-A CNI-DN-other -p udp ! -d 10.201.0.1 --dport 53 ${dnat}`,
          ]) {
            expect(await lab.run(lab.host, [tool, '-t', 'nat', ...rule.split(' ')])).toMatchObject({
              exitCode: 0,
            });
          }
          expect(await call(lab, 'ADD', neighbour, { ports: [...WEB, ...ON_ONE] })).toMatchObject({
            exitCode: 0,
          });
          const taken = [{ hostPort: 8081, containerPort: 80 }];
          expect((await call(lab, 'ADD', neighbour, { ports: taken })).error?.code).toBe(100);
          const onAnother = [{ ...ON_ONE[0], hostIP: BRIDGE.v4 }];
          expect((await call(lab, 'ADD', neighbour, { ports: onAnother })).error?.code).toBe(100);
        },
        requires(tool),
      );
    }

    test("a port in the reference's own table is refused", async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await load(
        lab,
        'add table ip cni_hostport',
        'add chain ip cni_hostport hostports',
        `add rule ip cni_hostport hostports tcp dport 8080 dnat to ${pod.v4}:80 comment "${pod.id}"`,
        `add rule ip cni_hostport hostports ip daddr 10.201.0.1 udp dport 53 dnat to ${pod.v4}:53 comment "${pod.id}"`,
      );
      for (const backend of BACKENDS) {
        const refused = await call(lab, 'ADD', neighbour, { backend });
        expect(refused.error?.msg).toEndWith(`container "${pod.id}" holds 8080/tcp`);
        expect((await call(lab, 'ADD', neighbour, { backend, ports: ON_ONE })).error?.code).toBe(100);
        expect(await call(lab, 'ADD', neighbour, { backend, ports: WEB.slice(1) })).toMatchObject({
          exitCode: 0,
        });
        await call(lab, 'DEL', neighbour);
      }
      expect(await call(lab, 'ADD', pod, {})).toMatchObject({ exitCode: 0 });
    });

    test('two interfaces of a container have their ports each, with iptables, too', async () => {
      const { lab, pod, outside } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'tcp', port: 80 });
      const second = { ...pod, v4: '10.9.0.12', v6: 'fd00:9::12' };
      await lab.ip(pod, 'addr', 'add', `${second.v4}/24`, 'dev', 'eth0');
      const ports = [{ hostPort: 8081, containerPort: 80 }];
      const how = { backend: 'iptables' };
      await call(lab, 'ADD', pod, how);
      expect(await call(lab, 'ADD', second, { ...how, ifname: 'net1', ports })).toMatchObject({
        exitCode: 0,
      });
      const reach = (port: number) => answers(lab, outside, 'tcp', outside.hostAddress.v4, port);
      expect([await reach(8080), await reach(8081)]).toEqual([true, true]);
      expect(await call(lab, 'CHECK', pod, how)).toMatchObject({ exitCode: 0 });
      expect(await call(lab, 'CHECK', second, { ...how, ifname: 'net1', ports })).toMatchObject({
        exitCode: 0,
      });
      await gc(lab, [
        [pod, 'eth0'],
        [pod, 'net1'],
      ]);
      await call(lab, 'DEL', pod);
      expect([await reach(8080), await reach(8081)]).toEqual([false, true]);
      // Now the name of the chain is free, but what is there stays where it is.
      expect(await call(lab, 'CHECK', second, { ...how, ifname: 'net1', ports })).toMatchObject({
        exitCode: 0,
      });
      await call(lab, 'ADD', pod, how);
      await gc(lab, [[pod, 'eth0']]);
      expect([await reach(8080), await reach(8081)]).toEqual([true, false]);
      await call(lab, 'DEL', pod);
      expect(await saved(lab)).not.toContain('CNI-DN-');
      expect(await elementsLeft(lab)).toEqual([]);
    });

    test('with iptables, DEL deletes UDP flows without knowing the mappings', async () => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      for (const one of [pod, neighbour]) await startServer(lab, one, { protocol: 'udp', port: 80 });
      const ask = () => askUdp(lab, outside, outside.hostAddress.v4);
      await call(lab, 'ADD', pod, { backend: 'iptables' });
      expect(await ask()).toBe(true);
      await lab.ip(lab.host, 'link', 'set', 'pod2', 'down');
      await call(lab, 'DEL', pod);
      await call(lab, 'ADD', neighbour, { backend: 'iptables' });
      expect(await ask()).toBe(true);
    });

    testNeeding(
      'DEL also deletes UDP flows to a container of the reference',
      async () => {
        const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
        for (const one of [pod, neighbour]) await startServer(lab, one, { protocol: 'udp', port: 80 });
        const ask = () => askUdp(lab, outside, outside.hostAddress.v4);
        await call(lab, 'ADD', pod, { reference: true });
        expect(await ask()).toBe(true);
        await lab.ip(lab.host, 'link', 'set', 'pod2', 'down');
        await call(lab, 'DEL', pod);
        // The reference's ADD would delete them as well: only DEL can have done it here.
        const flows = (await lab.run(lab.host, ['conntrack', '-L', '-p', 'udp', '--orig-port-dst', '8080']))
          .stdout;
        expect(flows).not.toContain('dport=8080');
        await call(lab, 'ADD', neighbour, {});
        expect(await ask()).toBe(true);
      },
      requiresReference('portmap'),
      requires('conntrack'),
    );

    test('with iptables, pods do not reach the host’s loopback', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await call(lab, 'ADD', pod, { backend: 'iptables' });
      expect(await lab.sysctl(lab.host, 'net/ipv4/conf/br0/route_localnet')).toBe('1');
      await startServer(lab, lab.host, { protocol: 'tcp', port: 9999, address: '127.0.0.1' });
      await lab.sysctl(neighbour, 'net/ipv4/conf/all/route_localnet', 1);
      await lab.ip(neighbour, 'addr', 'flush', 'dev', 'lo');
      await lab.ip(neighbour, 'route', 'add', '127.0.0.1', 'via', BRIDGE.v4, 'src', neighbour.v4);
      expect(await answers(lab, neighbour, 'tcp', '127.0.0.1', 9999)).toBe(false);
      await load(lab, 'flush chain inet catena_portmap guard');
      expect(await answers(lab, neighbour, 'tcp', '127.0.0.1', 9999)).toBe(true);
      expect((await call(lab, 'CHECK', pod, { backend: 'iptables' })).error?.msg).toContain('chain "guard"');
    });

    test('with iptables, ADD restores flushed rules, and CHECK fails until then', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const how = { backend: 'iptables' };
      for (const wipe of [
        ['nft flush ruleset'],
        ['iptables -t nat -F', 'iptables -t nat -X'],
        ['ip6tables -t nat -F', 'ip6tables -t nat -X'],
        ['nft delete table inet catena_portmap', 'iptables -t nat -F'],
      ]) {
        expect(await call(lab, 'ADD', pod, how)).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'CHECK', pod, how)).toMatchObject({ exitCode: 0 });
        for (const command of wipe) {
          expect(await lab.run(lab.host, command.split(' '))).toMatchObject({ exitCode: 0 });
        }
        expect(await call(lab, 'CHECK', pod, how)).toMatchObject({ exitCode: 1, error: { code: 999 } });
      }
      expect(await call(lab, 'ADD', pod, how)).toMatchObject({ exitCode: 0 });
      expect(await call(lab, 'CHECK', pod, how)).toMatchObject({ exitCode: 0 });
    });

    test('STATUS tests the rules of iptables, and leaves nothing', async () => {
      const { lab } = await podsOnBridge(createLab);
      const status = (more: object) =>
        lab.plugin('portmap', { command: 'STATUS', conf: { ...confOf({}), backend: 'iptables', ...more } });
      expect(await status({})).toMatchObject({ exitCode: 0 });
      const odd = await status({ conditionsV4: ['-m', 'no-such-match'] });
      expect(odd).toMatchObject({ exitCode: 1, error: { code: 50 } });
      expect(odd.error?.msg).toContain('no-such-match');
      expect(await status({ externalSetMarkChain: 'NOBODYS' })).toMatchObject({ error: { code: 50 } });
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
    });
  },
  requires('ip', 'nft', 'iptables', 'ip6tables'),
);

function confOf(more: object): object {
  return { cniVersion: '1.1.0', name: 'podnet', type: 'portmap', ...more };
}

/** Debian's reference is of the release before 1.1.0, and has iptables only. */
function call(
  lab: Lab,
  command: 'ADD' | 'CHECK' | 'DEL',
  pod: Pod,
  { backend, ifname = 'eth0', conf = {}, ports = WEB, reference, env = {} }: Call = {},
): Promise<PluginReply> {
  const version = reference ? '1.0.0' : '1.1.0';
  const withPorts = command !== 'DEL' || reference ? { runtimeConfig: { portMappings: ports } } : {};
  return lab.plugin('portmap', {
    command,
    container: pod,
    ifname,
    conf: { ...confOf(withPorts), cniVersion: version, ...(backend ? { backend } : {}), ...conf },
    ...(command === 'DEL' ? {} : { prevResult: resultOf(pod, version, ifname) }),
    ...(reference ? { binDir: REFERENCE_BIN_DIR } : {}),
    env,
  });
}

function gc(lab: Lab, valid: readonly (readonly [Pod, string])[]): Promise<PluginReply> {
  const attachments = valid.map(([{ id }, ifname]) => ({ containerID: id, ifname }));
  const conf = confOf({ 'cni.dev/valid-attachments': attachments });
  return lab.plugin('portmap', { command: 'GC', conf });
}

async function load(lab: Lab, ...commands: string[]): Promise<void> {
  const stdin = commands.map(command => `${command}\n`).join('');
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0 });
}

async function saved(lab: Lab): Promise<string> {
  const texts: string[] = [];
  for (const tool of ['iptables-save', 'ip6tables-save']) {
    texts.push((await lab.run(lab.host, [tool, '-t', 'nat'])).stdout);
  }
  return texts.join('');
}

/** A search path on which iptables means the old packet filter. */
function legacyPath(lab: Lab): string {
  const dir = `${lab.tmp}/legacy`;
  fs.mkdirSync(dir);
  for (const tool of ['iptables', 'ip6tables']) {
    for (const name of [tool, `${tool}-restore`, `${tool}-save`]) {
      fs.symlinkSync('/usr/sbin/xtables-legacy-multi', `${dir}/${name}`);
    }
  }
  return `${dir}:${process.env.PATH}`;
}

/** Everything but counters. */
async function rules(lab: Lab): Promise<string> {
  const { stdout } = await lab.run(lab.host, ['nft', 'list', 'ruleset']);
  return stdout.replaceAll(/packets \d+ bytes \d+/g, '');
}

/** Names of sets with elements. */
async function elementsLeft(lab: Lab): Promise<string[]> {
  const rows = await lab.nft(lab.host, 'list', 'table', 'inet', 'catena_portmap');
  return rows.flatMap(row => row.map ?? row.set ?? []).flatMap(set => (set.elem ? set.name : []));
}
