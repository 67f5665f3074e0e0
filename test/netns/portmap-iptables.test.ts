// Do ports mapped with iptables work as those of the reference, and can either clean up after the other?

import { afterEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Lab, useLabs } from '../helpers/netns.ts';
import { type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { askUdp, BRIDGE, fakePod, type Pod, peerSeen, podsOnBridge, resultOf } from '../helpers/pods.ts';
import { describeInOrder, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { startServer } from '../helpers/traffic.ts';

interface Call {
  readonly version?: string;
  readonly network?: string;
  readonly conf?: object;
  readonly ports?: object[];
  readonly reference?: boolean;
  readonly env?: Record<string, string>;
  readonly prevResult?: boolean;
}

const PROTOCOLS = ['tcp', 'udp'] as const;
const WEB = PROTOCOLS.map(protocol => ({ hostPort: 8080, containerPort: 80, protocol }));
const IPTABLES = { backend: 'iptables' };

describeInOrder(
  'portmap with iptables',
  () => {
    const createLab = useLabs(afterEach);

    test('a second ADD changes nothing, and other mappings replace the earlier ones', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await call(lab, 'ADD', neighbour, { ports: [{ hostPort: 22, containerPort: 22, protocol: 'tcp' }] });
      await call(lab, 'ADD', pod);
      const once = await save(lab);
      expect(await call(lab, 'ADD', pod)).toMatchObject({ exitCode: 0 });
      expect((await save(lab)).toSorted()).toEqual(once.toSorted());
      await call(lab, 'ADD', pod, { ports: [{ hostPort: 7000, containerPort: 70, protocol: 'tcp' }] });
      const rules = (await save(lab)).join('\n');
      expect(rules).not.toMatch(/ 8080\b/);
      expect(rules).toContain('7000');
      expect(await call(lab, 'DEL', pod)).toMatchObject({ exitCode: 0 });
      expect((await save(lab)).join('\n')).toContain('dport 22');
    });

    test('many ADDs at once on an empty host all succeed', async () => {
      const { lab } = await podsOnBridge(createLab);
      const pods = await Promise.all(Array.from({ length: 6 }, (_, i) => fakePod(lab, 10 + i)));
      const ports = (i: number) => [{ hostPort: 9000 + i, containerPort: 80, protocol: 'tcp' }];
      const added = await Promise.all(pods.map((pod, i) => call(lab, 'ADD', pod, { ports: ports(i) })));
      expect(added.map(({ exitCode, stdout }) => (exitCode ? stdout : ''))).toEqual(Array(6).fill(''));
      const shared = (await save(lab)).filter(line => /^-A (PREROUTING|OUTPUT|POSTROUTING)/.test(line));
      expect(shared).toHaveLength(6);
      const checked = await Promise.all(pods.map((pod, i) => call(lab, 'CHECK', pod, { ports: ports(i) })));
      expect(checked.map(({ exitCode }) => exitCode)).toEqual(Array(6).fill(0));
      await Promise.all(pods.map(pod => call(lab, 'DEL', pod)));
      expect((await save(lab)).join('\n')).not.toContain('CNI-DN-');
    });

    test.each(['nft', 'legacy'])(
      'ADD of a port that is taken names the owner and leaves nothing (%s)',
      async mode => {
        const { lab, pod, neighbour } = await podsOnBridge(createLab);
        const env = mode === 'legacy' ? { PATH: legacyPath(lab) } : {};
        const on = (hostPort: number, hostIP = '', protocol = 'tcp') => [
          { hostPort: 7000, containerPort: 7, protocol: 'tcp' },
          { hostPort, containerPort: 80, protocol, ...(hostIP ? { hostIP } : {}) },
        ];
        const own = [...WEB, { hostPort: 53, containerPort: 53, protocol: 'udp', hostIP: '10.201.0.1' }];
        expect(await call(lab, 'ADD', pod, { ports: own, env })).toMatchObject({ exitCode: 0 });
        const before = await saveLegacyOrNft(lab);
        for (const [ports, held] of [
          [on(8080), '8080/tcp'],
          [on(8080, '127.0.0.1'), '8080/tcp'],
          [on(8080, 'fd00:201::1'), '8080/tcp'],
          [on(53, '10.201.0.1', 'udp'), '10.201.0.1:53/udp'],
          [on(53, '', 'udp'), '10.201.0.1:53/udp'],
        ] as const) {
          const refused = await call(lab, 'ADD', neighbour, { ports: [...ports], env });
          expect(refused).toMatchObject({ exitCode: 1, error: { code: 100 } });
          expect(refused.error?.msg).toEndWith(`container "${pod.id}" of network "podnet" holds ${held}`);
          expect(await saveLegacyOrNft(lab)).toEqual(before);
        }
        const conf = { conditionsV4: ['-s', '192.0.2.0/24'], conditionsV6: ['-s', 'fd00:3::/64'] };
        expect(await call(lab, 'ADD', neighbour, { ports: on(8080), env, conf })).toMatchObject({
          exitCode: 0,
        });
        expect(await call(lab, 'ADD', neighbour, { ports: on(53, '10.9.0.1', 'udp'), env })).toMatchObject({
          exitCode: 0,
        });
        // Another network of the container is told of the same ports.
        const second = { ...neighbour, id: pod.id };
        const more = { ports: own, env, network: 'second' };
        expect(await call(lab, 'ADD', second, more)).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'DEL', second, more)).toMatchObject({ exitCode: 0 });
        // The same address again, once its former owner has lost it.
        await lab.ip(pod, 'addr', 'flush', 'dev', 'eth0');
        const heir = { ...(await fakePod(lab, 2)) };
        expect(await call(lab, 'ADD', heir, { ports: own, env })).toMatchObject({ exitCode: 0 });
      },
    );

    test('conditions apply to their own attachment only', async () => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      for (const one of [pod, neighbour]) await startServer(lab, one, { protocol: 'tcp', port: 80 });
      const conf = { conditionsV4: ['!', '-s', outside.address.v4] };
      const other = [{ hostPort: 8081, containerPort: 80, protocol: 'tcp' }];
      await call(lab, 'ADD', pod, { conf });
      await call(lab, 'ADD', neighbour, { ports: other });
      const seen = (port: number, family: 'v4' | 'v6') =>
        peerSeen(lab, outside, 'tcp', outside.hostAddress[family], port);
      expect(await seen(8080, 'v4')).toBeUndefined();
      expect(await seen(8080, 'v6')).toBe(outside.address.v6);
      expect(await seen(8081, 'v4')).toBe(outside.address.v4);
      expect(await call(lab, 'CHECK', pod, { conf })).toMatchObject({ exitCode: 0 });
    });

    test('an external chain sets the mark, and ADD fails without a trace if it is missing', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const conf = { backend: undefined, externalSetMarkChain: 'KUBE-MARK-MASQ' };
      const failed = await call(lab, 'ADD', pod, { conf });
      const msg = expect.stringContaining('Cannot find the chain "KUBE-MARK-MASQ" of "externalSetMarkChain"');
      expect(failed).toMatchObject({ exitCode: 1, error: { code: 999, msg } });
      expect((await save(lab)).join('\n')).not.toContain('CNI-');
      for (const iptables of ['iptables', 'ip6tables']) {
        await runOk(lab, [iptables, '-t', 'nat', '-N', 'KUBE-MARK-MASQ']);
        await runOk(lab, [
          iptables,
          '-t',
          'nat',
          '-A',
          'KUBE-MARK-MASQ',
          '-j',
          'MARK',
          '--set-mark',
          '0x4000',
        ]);
        await runOk(lab, [
          ...[iptables, '-t', 'nat', '-A', 'POSTROUTING'],
          ...['-m', 'mark', '--mark', '0x4000', '-j', 'MASQUERADE'],
        ]);
      }
      expect(await call(lab, 'ADD', pod, { conf })).toMatchObject({ exitCode: 0 });
      expect((await save(lab)).join('\n')).not.toContain('CNI-HOSTPORT-MASQ');
      await startServer(lab, pod, { protocol: 'tcp', port: 80 });
      expect(await peerSeen(lab, neighbour, 'tcp', BRIDGE.v4)).toBe(BRIDGE.v4);
    });

    test('CHECK names a missing rule, also a shared one, and ADD restores it', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await call(lab, 'ADD', pod);
      const other = [{ hostPort: 22, containerPort: 22, protocol: 'tcp' }];
      for (const [chain, words] of [
        ['PREROUTING', 'PREROUTING -m addrtype'],
        ['CNI-HOSTPORT-SETMARK', 'CNI-HOSTPORT-SETMARK'],
        ['CNI-HOSTPORT-MASQ', 'CNI-HOSTPORT-MASQ'],
        ['POSTROUTING', 'POSTROUTING'],
      ]) {
        await runOk(lab, ['iptables', '-t', 'nat', '-F', `${chain}`]);
        const checked = await call(lab, 'CHECK', pod);
        expect(checked).toMatchObject({ exitCode: 1, error: { code: 999 } });
        expect(checked.error?.msg).toContain(`rule "${words}`);
        await call(lab, 'ADD', neighbour, { ports: other });
        expect(await call(lab, 'CHECK', pod)).toMatchObject({ exitCode: 0 });
      }
      await runOk(lab, ['iptables', '-t', 'nat', '-F', 'CNI-HOSTPORT-DNAT']);
      expect((await call(lab, 'CHECK', pod)).error?.msg).toContain('rule "CNI-HOSTPORT-DNAT');
    });

    test('ADD and a DEL with mappings delete UDP flows', async () => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      for (const one of [pod, neighbour]) await startServer(lab, one, { protocol: 'udp', port: 80 });
      const ask = () => askUdp(lab, outside, outside.hostAddress.v4);
      await call(lab, 'ADD', pod);
      expect(await ask()).toBe(true);
      await lab.ip(lab.host, 'link', 'set', 'pod2', 'down');
      await call(lab, 'DEL', pod, { ports: WEB });
      await call(lab, 'ADD', neighbour);
      expect(await ask()).toBe(true);
    });

    test('DEL removes mappings of another backend, knowing only the name', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await call(lab, 'ADD', pod);
      await call(lab, 'ADD', neighbour, { ports: [{ hostPort: 22, containerPort: 22, protocol: 'tcp' }] });
      const bare = { conf: { backend: 'nftables' }, prevResult: false };
      expect(await call(lab, 'DEL', { ...pod, path: '' }, { ...bare, network: 'other' })).toMatchObject({
        exitCode: 0,
      });
      expect((await save(lab)).join('\n')).toContain('8080');
      expect(await call(lab, 'DEL', { ...pod, path: '' }, bare)).toMatchObject({ exitCode: 0 });
      const rules = (await save(lab)).join('\n');
      expect(rules).not.toMatch(/ 8080\b/);
      expect(rules).toContain('dport 22');
      expect(await call(lab, 'DEL', pod, bare)).toMatchObject({ exitCode: 0 });
    });

    test('DEL starts no program and makes few requests if there is nothing', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const { stderr, exitCode } = await call(lab, 'DEL', pod, {
        conf: {},
        env: { CATENA_NETLINK_TRACE: '1' },
      });
      expect(exitCode).toBe(0);
      expect(stderr).not.toContain('GETRULE');
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
    });

    testNeeding(
      'DEL and GC remove the mappings of the reference, whatever is configured',
      async () => {
        const { lab, pod, neighbour } = await podsOnBridge(createLab);
        const other = [{ hostPort: 22, containerPort: 22, protocol: 'tcp' }];
        for (const verb of ['DEL', 'GC'] as const) {
          await call(lab, 'ADD', pod, { reference: true });
          await call(lab, 'ADD', neighbour, { reference: true, ports: other });
          expect((await save(lab)).join('\n')).toContain('8080');
          const reply =
            verb === 'DEL'
              ? await call(lab, 'DEL', pod, { conf: { backend: 'nftables' }, prevResult: false })
              : await gc(lab, [neighbour]);
          expect(reply).toMatchObject({ exitCode: 0 });
          const rules = (await save(lab)).join('\n');
          expect(rules).not.toMatch(/ 8080\b/);
          expect(rules.match(/:CNI-DN-/g)).toHaveLength(2);
          expect(rules).toContain('dport 22');
        }
      },
      requiresReference('portmap'),
    );

    testNeeding(
      'CHECK accepts the complete rules of the reference in place of our sets',
      async () => {
        const { lab, pod } = await podsOnBridge(createLab);
        const conf = { backend: 'nftables' };
        const odd = [...WEB, { hostPort: 8081, containerPort: 81, protocol: 'tcp', hostIP: '192.0.2.1' }];
        for (const ports of [WEB, odd]) {
          // The reference's ADD keeps what an earlier one made.
          await call(lab, 'DEL', pod, { conf: {}, ports, reference: true });
          await call(lab, 'ADD', pod, { conf: {}, ports, reference: true });
          expect(await call(lab, 'CHECK', pod, { conf, ports })).toMatchObject({ exitCode: 0, stderr: '' });
          const wrong = [...ports, { hostPort: 8082, containerPort: 80, protocol: 'tcp' }];
          const refused = await call(lab, 'CHECK', pod, { conf, ports: wrong });
          expect(refused.error?.msg).toContain(
            'Cannot confirm port mappings in iptables for IPv4: rule "CNI-DN-',
          );
        }
        for (const family of ['iptables', 'ip6tables']) {
          const whole = (await lab.run(lab.host, [`${family}-save`, '-t', 'nat'])).stdout;
          const lines = whole.split('\n');
          const put = async (text: string) => {
            const { exitCode } = await lab.run(lab.host, [`${family}-restore`], { stdin: text });
            expect(exitCode).toBe(0);
          };
          const rules = lines.filter(line => line.startsWith('-A'));
          expect(rules.length).toBeGreaterThan(8);
          for (const rule of rules) {
            await put(lines.filter(line => line !== rule).join('\n'));
            const { error } = await call(lab, 'CHECK', pod, { conf, ports: odd });
            expect([rule, error?.msg]).toEqual([rule, expect.stringContaining('in iptables for IPv')]);
          }
          await put(whole);
        }
        expect(await call(lab, 'CHECK', pod, { conf, ports: odd })).toMatchObject({ exitCode: 0 });
        // What is not whole gives way to our own.
        await lab.run(lab.host, ['iptables', '-t', 'nat', '-F', 'CNI-HOSTPORT-DNAT']);
        const repaired = { CATENA_REPAIR: '1' };
        expect(await call(lab, 'CHECK', pod, { conf, ports: odd, env: repaired })).toMatchObject({
          exitCode: 0,
        });
        expect((await save(lab)).join('\n')).not.toContain('CNI-DN-');
        expect(await call(lab, 'DEL', pod, { conf })).toMatchObject({ exitCode: 0 });
      },
      requiresReference('portmap'),
    );

    testNeeding(
      'the reference removes our mappings',
      async () => {
        const { lab, pod } = await podsOnBridge(createLab);
        await call(lab, 'ADD', pod);
        expect(await call(lab, 'DEL', pod, { reference: true })).toMatchObject({ exitCode: 0 });
        expect((await save(lab)).join('\n')).not.toContain('CNI-DN-');
      },
      requiresReference('portmap'),
    );

    testNeeding(
      'DEL and GC remove rules of iptables-legacy, and no others',
      async () => {
        const { lab, pod, neighbour } = await podsOnBridge(createLab);
        const env = { PATH: legacyPath(lab) };
        const other = [{ hostPort: 22, containerPort: 22, protocol: 'tcp' }];
        for (const verb of ['DEL', 'GC'] as const) {
          await call(lab, 'ADD', neighbour, { ports: other, env });
          expect(await call(lab, 'ADD', pod, { env })).toMatchObject({ exitCode: 0 });
          expect(await call(lab, 'ADD', pod, { env })).toMatchObject({ exitCode: 0 });
          expect(await call(lab, 'CHECK', pod, { env })).toMatchObject({ exitCode: 0 });
          const before = (await save(lab, 'legacy')).join('\n');
          expect(before.match(/8080 /g)).toHaveLength(14);
          expect(before.match(/-A PREROUTING/g)).toHaveLength(2);
          const reply =
            verb === 'DEL' ? await call(lab, 'DEL', pod, { conf: {} }) : await gc(lab, [neighbour]);
          expect(reply).toMatchObject({ exitCode: 0 });
          const after = (await save(lab, 'legacy')).join('\n');
          expect(after).not.toMatch(/ 8080\b/);
          expect(after.match(/--dport 22 /g)?.length).toBeGreaterThan(0);
          expect(after).toContain('--dports 22 ');
        }
        const tables = (await lab.nft(lab.host, 'list', 'tables')).map(({ table }) => table.name);
        expect(tables).toEqual(['catena_portmap']);
      },
      requires('iptables-legacy-restore', 'iptables-legacy-save'),
    );

    test("DEL removes the rules in the reference's own table, of this network if it can be determined", async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const twin = { ...pod, v4: '10.77.0.2', v6: 'fd00:77::2' };
      const tables = [pod, twin, neighbour].flatMap((one, i) => hostportRules(one, 8000 + i));
      await load(lab, [...HOSTPORT_TABLES, ...tables]);
      expect(await call(lab, 'DEL', pod, { conf: {} })).toMatchObject({ exitCode: 0 });
      expect(await hostportOwners(lab)).toEqual(
        [...Array(7).fill(pod.id), ...Array(7).fill(neighbour.id)].sort(),
      );
      expect((await ruleset(lab)).includes('8001')).toBe(true);
      expect(await call(lab, 'DEL', pod, { conf: {}, prevResult: false })).toMatchObject({ exitCode: 0 });
      expect(await hostportOwners(lab)).toEqual(Array(7).fill(neighbour.id));
    });

    test("GC removes rules in the reference's own table once the container certainly no longer exists", async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const [elsewhere, gone] = [await fakePod(lab, 7), await fakePod(lab, 8)];
      await lab.ip(gone, 'link', 'delete', 'eth0');
      const known = [pod, neighbour, elsewhere];
      const tables = [...known, gone].flatMap((one, i) => hostportRules(one, 8000 + i));
      await load(lab, [...HOSTPORT_TABLES, ...tables]);
      const all = [...known, gone].flatMap(({ id }) => Array(7).fill(id)).sort();
      const kept = known.flatMap(({ id }) => Array(7).fill(id)).sort();
      // Without records it cannot be determined.
      await gc(lab, [pod]);
      expect(await hostportOwners(lab)).toEqual(all);
      const record = (network: string, { id }: Pod) => `${lab.tmp}/cni/results/${network}-${id}-eth0`;
      fs.mkdirSync(`${lab.tmp}/cni/results`, { recursive: true });
      fs.writeFileSync(record('other', elsewhere), '{}');
      fs.writeFileSync(record('podnet', neighbour), '{}');
      // Records that lack a valid attachment are not the runtime's.
      await gc(lab, [pod]);
      expect(await hostportOwners(lab)).toEqual(all);
      fs.writeFileSync(record('podnet', pod), '{}');
      expect(await gc(lab, [pod])).toMatchObject({ exitCode: 0 });
      expect(await hostportOwners(lab)).toEqual(kept);
      // An address that another container has.
      const heir = { ...(await fakePod(lab, 7)) };
      await call(lab, 'ADD', heir, { conf: { backend: 'nftables' } });
      await gc(lab, [heir]);
      const left = (await hostportOwners(lab)).filter(id => id === elsewhere.id);
      expect(left).toEqual([]);
    });
  },
  requires('ip', 'nft', 'iptables', 'ip6tables'),
);

/** Debian's reference is of the release before 1.1.0. */
function call(
  lab: Lab,
  command: 'ADD' | 'CHECK' | 'DEL',
  pod: Pod,
  {
    version = '1.0.0',
    network = 'podnet',
    conf = IPTABLES,
    ports,
    reference,
    env,
    prevResult = true,
  }: Call = {},
): Promise<PluginReply> {
  const portMappings = ports ?? (command === 'DEL' ? undefined : WEB);
  const asked = portMappings ?? (reference ? WEB : undefined);
  const full = {
    cniVersion: version,
    name: network,
    type: 'portmap',
    ...IPTABLES,
    ...conf,
    ...(asked ? { runtimeConfig: { portMappings: asked } } : {}),
  };
  return lab.plugin('portmap', {
    command,
    container: pod,
    conf: full,
    ...(prevResult ? { prevResult: resultOf(pod, version) } : {}),
    ...(reference ? { binDir: REFERENCE_BIN_DIR } : {}),
    ...(env ? { env } : {}),
  });
}

function gc(lab: Lab, valid: Pod[]): Promise<PluginReply> {
  const attachments = valid.map(({ id }) => ({ containerID: id, ifname: 'eth0' }));
  const conf = {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'portmap',
    'cni.dev/valid-attachments': attachments,
  };
  return lab.plugin('portmap', { command: 'GC', conf });
}

/** Chains and rules of the table "nat" of both families, without counters. */
async function save(lab: Lab, mode: 'nft' | 'legacy' = 'nft'): Promise<string[]> {
  const texts: string[] = [];
  for (const family of ['iptables', 'ip6tables']) {
    texts.push((await lab.run(lab.host, [`${family}-${mode}-save`, '-t', 'nat'])).stdout);
  }
  return texts
    .flatMap(text => text.split('\n'))
    .filter(line => line !== '' && !line.startsWith('#'))
    .map(line => line.replace(/ \[\d+:\d+\]$/, ''));
}

async function saveLegacyOrNft(lab: Lab): Promise<string[]> {
  return [...(await save(lab, 'nft')), ...(await save(lab, 'legacy'))].filter(
    line => !line.includes('RETURN'),
  );
}

/** A search path on which iptables means the old packet filter. */
function legacyPath(lab: Lab): string {
  const dir = `${lab.tmp}/legacy`;
  const names = ['iptables-restore', 'iptables-save', 'ip6tables-restore', 'ip6tables-save'];
  const links = names.map(name => `ln -sf /usr/sbin/xtables-legacy-multi ${dir}/${name}`);
  Bun.spawnSync(['sh', '-c', [`mkdir -p ${dir}`, ...links].join(' && ')]);
  return `${dir}:${process.env.PATH}`;
}

const HOSTPORT_TABLES = ['ip', 'ip6'].flatMap(family => [
  `add table ${family} cni_hostport`,
  ...['hostports', 'hostip_hostports', 'masquerading'].map(
    chain => `add chain ${family} cni_hostport ${chain}`,
  ),
]);

/** As newer releases of the reference write them than the one at hand. */
function hostportRules({ id, v4, v6 }: Pod, port: number): string[] {
  const comment = `comment "${id}"`;
  return [
    `add rule ip cni_hostport hostports tcp dport ${port} dnat to ${v4}:80 ${comment}`,
    `add rule ip cni_hostport hostports ip daddr 192.0.2.1 udp dport ${port} dnat to ${v4}:80 ${comment}`,
    `add rule ip cni_hostport masquerading ip saddr ${v4} ip daddr ${v4} masquerade ${comment}`,
    `add rule ip cni_hostport masquerading ip saddr 127.0.0.1 ip daddr ${v4} masquerade ${comment}`,
    `add rule ip6 cni_hostport hostports tcp dport ${port} dnat to [${v6}]:80 ${comment}`,
    `add rule ip6 cni_hostport hostports udp dport ${port} dnat to [${v6}]:80 ${comment}`,
    `add rule ip6 cni_hostport masquerading ip6 saddr ${v6} ip6 daddr ${v6} masquerade ${comment}`,
  ];
}

async function hostportOwners(lab: Lab): Promise<string[]> {
  return Array.from((await ruleset(lab)).matchAll(/comment "([^"]*)"/g), ([, id = '']) => id).sort();
}

async function ruleset(lab: Lab): Promise<string> {
  return (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
}

async function load(lab: Lab, commands: string[]): Promise<void> {
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin: `${commands.join('\n')}\n` })).toMatchObject({
    exitCode: 0,
  });
}

async function runOk(lab: Lab, argv: string[]): Promise<void> {
  expect(await lab.run(lab.host, argv)).toMatchObject({ exitCode: 0 });
}
