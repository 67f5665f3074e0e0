// What can be put back of an attachment that others have taken apart, while its connections live on?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Chain, mixedBinDir, writeChain } from '../helpers/chain.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeNeeding, describeRoot, requiresReference, requiresRoot } from '../helpers/skip.ts';
import { converse } from '../helpers/traffic.ts';

const PORTS = [
  { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
  { hostPort: 5353, containerPort: 53, protocol: 'udp' },
];
const RATE = 100_000_000;
const BURST = 1_000_000;

function everyLink(lab: Lab): Row {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    plugins: [
      {
        type: 'bridge',
        bridge: 'br0',
        isDefaultGateway: true,
        ipMasq: true,
        hairpinMode: true,
        macspoofchk: true,
        ipam: {
          type: 'host-local',
          ranges: [[{ subnet: '10.88.0.0/16' }], [{ subnet: 'fd88::/64' }]],
          dataDir: `${lab.tmp}/leases`,
        },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'firewall' },
      { type: 'bandwidth', ingressRate: RATE, ingressBurst: BURST, egressRate: RATE, egressBurst: BURST },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` },
      { type: 'sbr' },
    ],
  };
}

function pointToPoint(lab: Lab): Row {
  return {
    cniVersion: '1.0.0',
    name: 'podnet',
    plugins: [
      {
        type: 'ptp',
        ipMasq: true,
        ipam: {
          type: 'host-local',
          subnet: '10.89.0.0/24',
          dataDir: `${lab.tmp}/leases`,
          routes: [{ dst: '0.0.0.0/0' }],
        },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
    ],
  };
}

/** Index and hardware address of every device that must stay. */
async function devices(lab: Lab, container: Container): Promise<string[]> {
  const rows = [...(await lab.ip(lab.host, 'link')), ...(await lab.ip(container, 'link'))];
  return rows.map(({ ifname, ifindex, address }) => `${ifname} ${ifindex} ${address}`).sort();
}

async function repair(lab: Lab, ...args: string[]): Promise<Row> {
  const argv = [`${BIN_DIR}/catena`, 'repair', '--json', ...args];
  const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, {
    env: directories(lab.tmp),
    timeoutMs: 60_000,
  });
  expect(stderr).toBe('');
  return { exitCode, ...JSON.parse(stdout) };
}

async function expectSound(chain: Chain, container: Container, cap: object): Promise<void> {
  expect(await chain.run('check', container, { cap })).toEqual({ exitCode: 0, stdout: '', stderr: '' });
}

async function hostVeth(lab: Lab, kind: string): Promise<string> {
  const [veth] = (await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).filter(
    one => one.linkinfo?.info_slave_kind === kind || kind === '',
  );
  return String(veth?.ifname);
}

describeRoot('catena repair', () => {
  test('restores every plugin of a chain, and keeps connections and devices', async () => {
    await withHost(async lab => {
      const [container, outside] = [await lab.container(), await lab.outside()];
      const chain = writeChain(lab, everyLink(lab));
      const cap = { portMappings: PORTS };
      await chain.add(container, { cap });
      await expectSound(chain, container, cap);
      const talk = await converse(lab, {
        from: outside,
        to: container,
        listen: 80,
        address: outside.hostAddress.v4,
        port: 8080,
      });
      try {
        expect(await talk.say('before')).toBe('before');
        const before = await devices(lab, container);
        const ruleset = await lab.nft(lab.host, 'list', 'ruleset');
        const leases = await chain.leases();

        const veth = await hostVeth(lab, 'bridge');
        await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
        await lab.run(lab.host, ['ip', 'link', 'set', veth, 'nomaster']);
        await lab.run(lab.host, ['tc', 'qdisc', 'del', 'dev', veth, 'root']);
        await lab.run(lab.host, ['tc', 'qdisc', 'del', 'dev', veth, 'ingress']);
        await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', 'br0']);
        await lab.sysctl(lab.host, 'net/ipv6/conf/br0/disable_ipv6', 1);
        await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 0);
        await lab.sysctl(container, 'net/core/somaxconn', 128);
        await lab.run(container, ['ip', 'rule', 'flush']);
        for (const lease of leases) fs.rmSync(lease);

        const seen = await repair(lab, '--dry-run');
        expect(seen.exitCode).toBe(1);
        const states = (report: Row) =>
          report.attachments[0].plugins.map(({ type, state }: Row) => `${type} ${state}`);
        const links = ['bridge', 'portmap', 'firewall', 'bandwidth', 'tuning', 'sbr'];
        expect(states(seen)).toEqual(links.map(link => `${link} broken`));

        const mended = await repair(lab, 'podnet');
        expect(mended.attachments[0].plugins.flatMap(({ error }: Row) => error ?? [])).toEqual([]);
        expect(states(mended)).toEqual(links.map(link => `${link} mended`));
        expect(mended).toMatchObject({ exitCode: 0, attachments: [{ state: 'mended' }] });

        expect(await talk.say('after')).toBe('after');
        await expectSound(chain, container, cap);
        expect(await devices(lab, container)).toEqual(before);
        expect(await chain.leases()).toEqual(leases);
        expect(shapeOf(await lab.nft(lab.host, 'list', 'ruleset'))).toEqual(shapeOf(ruleset));
        expect(await repair(lab)).toMatchObject({ exitCode: 0, attachments: [{ state: 'sound' }] });
      } finally {
        await talk.end();
      }
      expect((await chain.run('del', container, { cap })).exitCode).toBe(0);
      expect(fs.readdirSync(`${lab.tmp}/state/unsettled/podnet`)).toEqual([]);
    });
  });

  test('restores what our plugins made for a list from before CHECK', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const list = everyLink(lab);
      const [bridge, portmap] = list.plugins;
      const chain = writeChain(lab, { ...list, cniVersion: '0.3.1', plugins: [bridge, portmap] });
      const other = await lab.container();
      await chain.add(container, { cap: { portMappings: PORTS } });
      await chain.add(other);
      // What both have lost alike is told once, also if each has lost an element of its own.
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const damages = [
        [['nft', 'flush', 'map', 'inet', 'catena_masquerade', 'pods4'], 'elements of "pods4" are missing'],
        [['ip', 'addr', 'flush', 'dev', 'br0'], 'of "br0"'],
      ] as const;
      for (const [damage, words] of damages) {
        await lab.run(lab.host, damage);
        const doctor = await lab.run(lab.host, [`${BIN_DIR}/catena`, 'doctor', '--json'], { env });
        const { findings } = JSON.parse(doctor.stdout);
        expect(findings.flatMap(({ id, found }: Row) => (id === 'attachments' ? [found] : []))).toEqual([
          expect.stringMatching(new RegExp(`^2 containers \\(.*are not as their ADD left them.*${words}`)),
        ]);
      }
      await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
      const seen = await repair(lab, '--dry-run');
      const both = (state: string) => ({ attachments: [{ state }, { state }] });
      expect(seen).toMatchObject({ exitCode: 1, ...both('broken') });
      expect(await repair(lab)).toMatchObject({ exitCode: 0, ...both('mended') });
      expect(await repair(lab)).toMatchObject({ exitCode: 0, ...both('sound') });
      const checked = await chain.run('check', container);
      expect([checked.exitCode, checked.stderr]).toEqual([
        1,
        expect.stringContaining('does not support the CHECK'),
      ]);
    });
  });

  test('restores a point-to-point attachment', async () => {
    await withHost(async lab => {
      const [container, outside] = [await lab.container(), await lab.outside()];
      const chain = writeChain(lab, pointToPoint(lab));
      const cap = { portMappings: PORTS };
      await chain.add(container, { cap });
      const talk = await converse(lab, {
        from: outside,
        to: container,
        listen: 80,
        address: outside.hostAddress.v4,
        port: 8080,
      });
      try {
        expect(await talk.say('before')).toBe('before');
        const before = await devices(lab, container);
        const [address] = (await lab.ip(container, '-4', 'addr', 'show', 'dev', 'eth0'))[0]?.addr_info ?? [];
        await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
        await lab.run(lab.host, ['ip', 'route', 'del', `${address.local}/32`]);
        const mended = await repair(lab);
        expect(mended.attachments[0].plugins.flatMap(({ error }: Row) => error ?? [])).toEqual([]);
        expect(await talk.say('after')).toBe('after');
        await expectSound(chain, container, cap);
        expect(await devices(lab, container)).toEqual(before);
      } finally {
        await talk.end();
      }
    });
  });

  test('restores iptables rules', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const list = everyLink(lab);
      const [bridge] = list.plugins;
      const plugins = [
        { ...bridge, ipMasqBackend: 'iptables', macspoofchk: false },
        { type: 'portmap', backend: 'iptables', capabilities: { portMappings: true } },
        { type: 'firewall', backend: 'iptables' },
      ];
      const chain = writeChain(lab, { ...list, plugins });
      const cap = { portMappings: PORTS };
      await chain.add(container, { cap });
      await expectSound(chain, container, cap);
      await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
      const mended = await repair(lab);
      expect(mended.attachments[0].plugins.flatMap(({ error }: Row) => error ?? [])).toEqual([]);
      expect(mended).toMatchObject({ exitCode: 0, attachments: [{ state: 'mended' }] });
      await expectSound(chain, container, cap);
      expect((await chain.run('del', container, { cap })).exitCode).toBe(0);
    });
  });

  test.each(['bridge', 'ptp'])('restores nothing that depends on a lost veth pair of %s', async kind => {
    await withHost(async lab => {
      const container = await lab.container();
      const chain = writeChain(lab, kind === 'ptp' ? pointToPoint(lab) : everyLink(lab));
      const cap = { portMappings: PORTS };
      await chain.add(container, { cap });
      await lab.run(container, ['ip', 'link', 'del', 'eth0']);
      await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
      for (const lease of await chain.leases()) fs.rmSync(lease);
      const report = await repair(lab);
      expect(report).toMatchObject({ exitCode: 1, attachments: [{ state: 'broken' }] });
      expect(report.attachments[0].plugins[0].error.msg).toContain('only DEL and ADD can recreate');
      expect(await chain.leases()).toEqual([]);
      expect(await lab.nft(lab.host, 'list', 'ruleset')).toEqual([]);
    });
  });

  test('leaves attachments alone whose namespace is gone, and reports what cannot be repaired', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const chain = writeChain(lab, everyLink(lab));
      for (const container of [one, two]) await chain.add(container);
      await lab.remove(one);
      await lab.run(lab.host, ['ip', 'link', 'del', 'br0']);
      const report = await repair(lab);
      expect(report.exitCode).toBe(1);
      const byId = Object.fromEntries(report.attachments.map((found: Row) => [found.containerId, found]));
      expect(byId[one.id]).toMatchObject({
        state: 'skipped',
        why: `its namespace "${one.path}" no longer exists; DEL deletes it`,
      });
      expect(byId[two.id].plugins[0]).toMatchObject({ type: 'bridge', state: 'broken' });
    });
  });
});

describeNeeding(
  'catena repair of third-party plugins',
  () => {
    test('reports them, and with --foreign runs ADD of chained ones again', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const list = everyLink(lab);
        const plugins = list.plugins.filter(({ type }: Row) => ['bridge', 'tuning'].includes(type));
        const bin = mixedBinDir(lab, REFERENCE_BIN_DIR, 'tuning');
        const chain = writeChain(lab, { ...list, cniVersion: '1.0.0', plugins });
        await chain.add(container, { binDir: bin });
        await lab.sysctl(container, 'net/core/somaxconn', 128);
        const argv = ['--bin-dir', bin];
        const reported = await repair(lab, ...argv);
        expect(reported).toMatchObject({ exitCode: 1, attachments: [{ state: 'broken' }] });
        const mended = await repair(lab, ...argv, '--foreign');
        expect(mended.attachments[0].plugins).toMatchObject([{ state: 'sound' }, { state: 'mended' }]);
        expect((await chain.run('check', container, { binDir: bin })).exitCode).toBe(0);
        expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe('321');
      });
    });
  },
  requiresRoot(),
  requiresReference('tuning'),
);

/** Tables, chains, sets and rules without what the kernel counts and numbers. */
function shapeOf(rows: readonly Row[]): string[] {
  return rows
    .map(row =>
      JSON.stringify(row, (key, value) => (['handle', 'packets', 'bytes'].includes(key) ? 0 : value)),
    )
    .sort();
}
