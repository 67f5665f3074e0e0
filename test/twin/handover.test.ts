// Can the reference delete what our plugins made once it is handed over, with nothing left and no moment without traffic?
import { afterAll, expect, setDefaultTimeout, test } from 'bun:test';
import { CATENA } from '../helpers/catena.ts';
import { type Chain, writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference } from '../helpers/skip.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';

// A trial runs in namespaces of its own, which takes a while on a busy machine.
setDefaultTimeout(deadline(240_000));

const CAP = {
  portMappings: [
    { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
    { hostPort: 8053, containerPort: 53, protocol: 'udp' },
  ],
  bandwidth: { ingressRate: 1e7, ingressBurst: 2e6, egressRate: 1e7, egressBurst: 2e6 },
};
const V4 = [[{ subnet: '10.88.0.0/24' }]];
const V6 = [[{ subnet: 'fd88::/64' }]];
const PORTMAP = { type: 'portmap', capabilities: { portMappings: true } };
const STATIC = {
  type: 'static',
  addresses: [
    { address: '10.88.0.2/24', gateway: '10.88.0.1' },
    { address: 'fd88::2/64', gateway: 'fd88::1' },
  ],
};
const MASQ = { ipMasq: true };

const bridge = (ranges: Row[], more: Row = {}): Row => {
  return { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipam: { ranges }, ...more };
};
const macvlan = (ranges: Row[], more: Row = {}): Row => {
  return { type: 'macvlan', master: 'outside0', ...more, ipam: { ranges } };
};
const ptp = (ranges: Row[]): Row => ({ type: 'ptp', ...MASQ, ipam: { ranges } });

/** Each with the names of the parts that only our plugins would delete. */
const LISTS: readonly (readonly [title: string, plugins: Row[], parts: readonly string[]])[] = [
  ['plain bridge', [bridge(V4)], []],
  ['bridge, ipMasq of IPv4', [bridge(V4, MASQ)], ['masquerading of 10.88.0.2']],
  ['bridge, ipMasq of IPv6', [bridge(V6, MASQ)], ['masquerading of fd88::2']],
  [
    'bridge, ipMasq of both families',
    [bridge([...V4, ...V6], MASQ)],
    ['masquerading of 10.88.0.2 and fd88::2'],
  ],
  ['ptp, ipMasq of both families', [ptp([...V4, ...V6])], ['masquerading of 10.88.0.2 and fd88::2']],
  ['portmap', [bridge([...V4, ...V6]), PORTMAP], ['host port 8080/tcp, host port 8053/udp']],
  ['portmap and ipMasq', [bridge([...V4, ...V6], MASQ), PORTMAP], ['masquerading', 'host port 8080/tcp']],
  [
    'portmap with every source replaced',
    [bridge(V4, MASQ), { ...PORTMAP, masqAll: true }],
    ['masquerading', 'host port'],
  ],
  ['portmap by iptables', [bridge(V4), { ...PORTMAP, backend: 'iptables' }], ['host port 8080/tcp']],
  ['hairpin mode', [bridge(V4, { ...MASQ, hairpinMode: true }), PORTMAP], ['masquerading', 'host port']],
  [
    'firewall',
    [bridge([...V4, ...V6], MASQ), { type: 'firewall' }],
    ['masquerading', 'firewall rules for 10.88.0.2'],
  ],
  [
    'firewall with closed bridges',
    [bridge(V4), { type: 'firewall', ingressPolicy: 'same-bridge' }],
    ['firewall rules for 10.88.0.2'],
  ],
  [
    'bandwidth',
    [bridge(V4, MASQ), { type: 'bandwidth', capabilities: { bandwidth: true } }],
    ['masquerading'],
  ],
  ['tuning', [bridge(V4), { type: 'tuning', mtu: 1400, sysctl: { 'net.core.somaxconn': '321' } }], []],
  ['anti-spoofing', [bridge(V4, { macspoofchk: true })], ['anti-spoofing of "veth']],
  [
    'addresses that the list gives',
    [bridge([], { ...MASQ, ipam: STATIC })],
    ['masquerading of 10.88.0.2 and fd88::2'],
  ],
  [
    'routes by source',
    [bridge([...V4, ...V6], MASQ), { type: 'sbr' }],
    ['masquerading of 10.88.0.2 and fd88::2'],
  ],
  ['macvlan', [macvlan([...V4, ...V6])], []],
  [
    'all together',
    [
      bridge([...V4, ...V6], { ...MASQ, hairpinMode: true }),
      PORTMAP,
      { type: 'firewall' },
      { type: 'bandwidth', capabilities: { bandwidth: true } },
      { type: 'tuning', mtu: 1400 },
    ],
    ['masquerading', 'host port 8080/tcp', 'firewall rules'],
  ],
];

/** A row for each list, printed when all were tried. */
const TABLE: Row[] = [];

afterAll(() => {
  if (TABLE.length) process.stdout.write(`${Bun.inspect.table(TABLE)}\n`);
});

/** The reference's sbr writes down what it does. */
function withoutLog(text: string): string {
  return text
    .split('\n')
    .filter(line => !/^\d{4}\/\d\d\/\d\d /.test(line))
    .join('\n');
}

function listIn(lab: Lab, plugins: readonly Row[], cniVersion = '1.0.0'): Row {
  const placed = plugins.map(({ ipam, ...entry }) => ({
    ...entry,
    ...(ipam ? { ipam: { type: 'host-local', ...ipam, dataDir: `${lab.tmp}/leases` } } : {}),
    ...(entry.type === 'tuning' ? { dataDir: `${lab.tmp}/tuning` } : {}),
  }));
  return { cniVersion, name: 'podnet', plugins: placed };
}

function handOver(lab: Lab, ...args: string[]): Promise<Finished> {
  const argv = [CATENA, 'handover', '--to', REFERENCE_BIN_DIR, ...args];
  return lab.run(lab.host, argv, { env: directories(lab.tmp), timeoutMs: 100_000 });
}

/** What the kernel and the directories hold of the container. */
async function leftOf(lab: Lab, container: Container): Promise<string[]> {
  const { id } = container;
  const [links, inside] = await Promise.all([
    lab.ip(lab.host, 'link', 'show'),
    lab.ip(container, 'link', 'show'),
  ]);
  const rules = (
    await Promise.all(['-4', '-6'].map(family => lab.ip(container, family, 'rule', 'show')))
  ).flat();
  const devices = links.filter(({ linkinfo }) => ['veth', 'ifb', 'macvlan'].includes(linkinfo?.info_kind));
  const nft = (await lab.nft(lab.host, 'list', 'ruleset')).map(row => JSON.stringify(row));
  const saved = await Promise.all(
    ['iptables-save', 'ip6tables-save'].map(async program => (await lab.run(lab.host, [program])).stdout),
  );
  const files = (await lab.run(lab.host, ['find', `${lab.tmp}/leases`, `${lab.tmp}/tuning`, '-type', 'f']))
    .stdout;
  const isOwn = (text: string) =>
    text.includes(id) || /10\.88\.0\.2\b|fd88::2\b|CNI-(DN-)?[0-9a-f]{21}|\b80(80|53)\b/.test(text);
  return [
    ...devices.flatMap(({ ifname }) => (ifname === 'outside0' ? [] : [ifname])),
    ...inside.flatMap(({ ifname }) => (ifname === 'lo' ? [] : [`${ifname} of the container`])),
    ...rules.flatMap(({ src }) => (src === 'all' ? [] : [`rule from ${src} of the container`])),
    ...nft.filter(isOwn),
    ...saved.flatMap(text => text.split('\n').filter(isOwn)),
    ...files
      .split('\n')
      .filter(file => !/\/(\.catena-[^/]*|last_reserved_ip\.\d|lock)$/.test(file) && file !== ''),
  ];
}

async function elementsOf(lab: Lab, { id }: Container, network = 'podnet'): Promise<string[]> {
  const rows = await lab.nft(lab.host, 'list', 'ruleset');
  return rows.map(row => JSON.stringify(row)).filter(text => text.includes(`catena:${network}/${id}`));
}

const deleteBy = (chain: Chain, container: Container, binDir?: string) =>
  chain.run('del', container, binDir === undefined ? {} : { binDir });

describeRoot(
  'an attachment of ours',
  () => {
    test.each(LISTS)(
      '[%s] that is handed over is deleted completely by the reference',
      async (title, plugins, parts) => {
        await withHost(async lab => {
          const container = await lab.container();
          if (plugins.some(({ master }) => master)) await lab.outside();
          const chain = writeChain(lab, listIn(lab, plugins));
          await chain.add(container, { cap: CAP });

          const looked = await handOver(lab, '--dry-run');
          expect([looked.exitCode, looked.stderr]).toEqual([0, '']);
          for (const part of parts) expect(looked.stdout).toContain(part);
          const handed = await handOver(lab);
          expect([handed.exitCode, handed.stderr]).toEqual([0, '']);
          expect(handed.stdout).toContain(parts.length ? '1 handed over' : '1 ready');
          expect(await elementsOf(lab, container)).toEqual([]);
          expect((await chain.run('check', container)).stderr).toBe('');
          const again = await handOver(lab, '--force');
          expect([again.exitCode, again.stdout]).toEqual([0, expect.stringContaining('1 ready')]);

          const deleted = await deleteBy(chain, container, REFERENCE_BIN_DIR);
          const left = await leftOf(lab, container);
          TABLE.push({
            list: title,
            plugins: plugins.map(({ type }) => type).join(' '),
            'handed over': parts.length ? 'yes' : 'nothing to do',
            'DEL by the reference': deleted.exitCode === 0 ? 'succeeds' : deleted.stderr,
            left: left.length,
          });
          expect([deleted.exitCode, withoutLog(deleted.stderr)]).toEqual([0, '']);
          expect(left).toEqual([]);
        });
      },
    );

    test.each(LISTS)(
      '[%s] that is handed over can still be deleted by our plugins',
      async (_title, plugins) => {
        await withHost(async lab => {
          const container = await lab.container();
          if (plugins.some(({ master }) => master)) await lab.outside();
          const chain = writeChain(lab, listIn(lab, plugins));
          await chain.add(container, { cap: CAP });
          expect((await handOver(lab, '--force')).exitCode).toBe(0);
          const deleted = await deleteBy(chain, container);
          expect([deleted.exitCode, deleted.stderr]).toEqual([0, '']);
          expect(await leftOf(lab, container)).toEqual([]);
        });
      },
    );

    test('of a list without CHECK is handed over as well', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const chain = writeChain(lab, listIn(lab, [bridge(V4, MASQ), PORTMAP], '0.3.1'));
        await chain.add(container, { cap: CAP });
        const handed = await handOver(lab);
        expect([handed.exitCode, handed.stdout]).toEqual([0, expect.stringContaining('1 handed over')]);
        expect((await deleteBy(chain, container, REFERENCE_BIN_DIR)).stderr).toBe('');
        expect(await leftOf(lab, container)).toEqual([]);
      });
    });

    test('keeps its masquerading and its ports while it is handed over', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const outside = await lab.outside();
        const chain = writeChain(lab, listIn(lab, [bridge(V4, MASQ), PORTMAP, { type: 'firewall' }]));
        await chain.add(container, { cap: CAP });
        const server = await startServer(lab, container, { protocol: 'tcp', port: 80 });
        const there = await startServer(lab, outside, { protocol: 'tcp', port: 9000 });
        const seen: string[] = [];
        let isOver = false;
        const trying = (async () => {
          while (!isOver) {
            const into = await echo(lab, outside, {
              protocol: 'tcp',
              address: outside.hostAddress.v4,
              port: 8080,
            });
            const out = await echo(lab, container, {
              protocol: 'tcp',
              address: outside.address.v4,
              port: 9000,
            });
            if (!into) seen.push('the port did not answer');
            if (!out?.peer.includes(outside.hostAddress.v4))
              seen.push(`outside saw ${out?.peer ?? 'no peer'}`);
          }
        })();
        const handed = await handOver(lab, '--force');
        isOver = true;
        await trying;
        expect([handed.exitCode, seen]).toEqual([0, []]);
        const out = await echo(lab, container, { protocol: 'tcp', address: outside.address.v4, port: 9000 });
        expect(out?.peer).toContain(outside.hostAddress.v4);
        expect(await ping(lab, container, outside.address.v4)).toBe(true);
        await server.stop();
        await there.stop();
      });
    });

    test('is intact or handed over wherever the command is killed, and the next command continues', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const chain = writeChain(
          lab,
          listIn(lab, [
            bridge([...V4, ...V6], { ...MASQ, macspoofchk: true }),
            PORTMAP,
            { type: 'firewall' },
          ]),
        );
        await chain.add(container, { cap: CAP });
        const env = Object.entries(directories(lab.tmp)).map(([name, value]) => `${name}=${value}`);
        const argv = ['env', ...env, CATENA, 'handover', '--to', REFERENCE_BIN_DIR, '--force'];
        for (let ms = 60; ms <= 600; ms += 30) {
          const command = lab.start(lab.host, argv);
          await Bun.sleep(ms);
          command.kill('SIGKILL');
          await command.exited;
          // A worker that outlives the command finishes the call that it serves: CHECK may run in the middle of that.
          let checked = await chain.run('check', container);
          for (let again = 0; checked.exitCode !== 0 && again < 20; again++) {
            await Bun.sleep(100);
            checked = await chain.run('check', container);
          }
          expect([ms, checked.exitCode, checked.stderr]).toEqual([ms, 0, '']);
        }
        expect((await handOver(lab, '--force')).exitCode).toBe(0);
        expect((await deleteBy(chain, container, REFERENCE_BIN_DIR)).stderr).toBe('');
        expect(await leftOf(lab, container)).toEqual([]);
      });
    });

    test('is refused to executables that lack its plugins, and nothing changes', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const chain = writeChain(lab, listIn(lab, [bridge(V4, MASQ)]));
        await chain.add(container);
        const before = await elementsOf(lab, container);
        const refused = await lab.run(lab.host, [CATENA, 'handover', '--to', lab.tmp], {
          env: directories(lab.tmp),
        });
        expect(refused.exitCode).toBe(1);
        expect(refused.stdout).toContain(`there is no "bridge" and no "host-local" in "${lab.tmp}"`);
        expect(await elementsOf(lab, container)).toEqual(before);
      });
    });

    test('to which the host has access on its own network is refused, as the reference would leave that', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const chain = writeChain(lab, listIn(lab, [macvlan(V4, { hostAccess: true })]));
        await chain.add(container);
        const before = await elementsOf(lab, container);
        const refused = await handOver(lab);
        expect([refused.exitCode, refused.stdout]).toEqual([
          1,
          expect.stringMatching(/^refused .*only our DEL ends the host's access to it/m),
        ]);
        expect(await elementsOf(lab, container)).toEqual(before);
      });
    });

    test('whose conditions iptables cannot express is refused with the reason, and keeps the others from it', async () => {
      await withHost(async lab => {
        const [container, other] = [await lab.container(), await lab.container()];
        const conditions = { conditionsV4: ['ip', 'saddr', '192.0.2.0/24'] };
        const chain = writeChain(lab, listIn(lab, [bridge(V4), { ...PORTMAP, ...conditions }]));
        await chain.add(container, { cap: CAP });
        const plain = bridge([[{ subnet: '10.99.0.0/24' }]], { ...MASQ, bridge: 'br1' });
        const easy = writeChain(lab, { ...listIn(lab, [plain]), name: 'easynet' });
        await easy.add(other);
        const state = async () => [await elementsOf(lab, container), await elementsOf(lab, other, 'easynet')];
        const before = await state();
        const refused = await handOver(lab);
        expect(refused.exitCode).toBe(1);
        expect(refused.stdout).toContain('its conditions are in nft syntax');
        expect(refused.stdout).toMatch(/^pending {6}easynet .*\n.*masquerading/m);
        expect(refused.stdout).toContain('nothing was handed over: ');
        expect(await state()).toEqual(before);

        const forced = await handOver(lab, '--force');
        expect([forced.exitCode, forced.stdout]).toEqual([1, expect.stringContaining('1 handed over')]);
        expect(await state()).toEqual([before[0] ?? [], []]);
      });
    });
  },
  requires('ip', 'nft', 'iptables', 'ping'),
  requiresReference(
    ...[
      'bridge',
      'ptp',
      'macvlan',
      'host-local',
      'static',
      'portmap',
      'firewall',
      'bandwidth',
      'tuning',
      'sbr',
    ],
  ),
);
