// Does the bandwidth plugin limit traffic with the subnets that are named, or with all others, and nothing else?
import { describe, expect, test } from 'bun:test';
import { connect, type Pod, shapingOf } from '../helpers/connected-pod.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Lab, withHost } from '../helpers/netns.ts';
import { type PluginCall, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresLinkKind, requiresReference, testNeeding } from '../helpers/skip.ts';
import { measureRate, ping, steadily } from '../helpers/traffic.ts';

const MBIT = 1_000_000;
const BOTH = {
  ingressRate: 20 * MBIT,
  ingressBurst: MBIT,
  egressRate: 10 * MBIT,
  egressBurst: MBIT,
};
/** Addresses of the host that tests name in lists, and others that they do not. */
const NAMED = { v4: '10.78.0.1', v6: 'fd78::1' };
const OTHERS = { v4: '10.79.0.1', v6: 'fd79::1' };
const SUBNETS = ['10.78.0.0/16', 'fd78::/64'];
const UNSHAPED = { ...BOTH, unshapedSubnets: SUBNETS };
const SHAPED = { ...BOTH, shapedSubnets: SUBNETS };

function callOf(
  command: string,
  pod: Pod,
  limits: object,
  { cniVersion = '1.0.0', ...more }: Partial<PluginCall> & { cniVersion?: string } = {},
): PluginCall {
  const conf = { cniVersion, name: 'podnet', type: 'bandwidth', ...limits };
  const prevResult = { ...pod.prevResult, cniVersion };
  return { command, conf, container: pod.container, ifname: pod.ifname, prevResult, ...more };
}

async function succeed(lab: Lab, call: PluginCall) {
  const reply = await lab.plugin('bandwidth', call);
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

async function fail(lab: Lab, call: PluginCall): Promise<string> {
  const reply = await lab.plugin('bandwidth', call);
  expect(reply.exitCode).toBe(1);
  return reply.error?.msg ?? '';
}

/** The tree on a device as `tc` shows it, in a few words. */
async function treeOf(lab: Lab, dev: string) {
  const qdiscs = await lab.tc(lab.host, 'qdisc', 'show', 'dev', dev);
  const [root] = qdiscs.filter(qdisc => qdisc.root);
  const classes = (await lab.run(lab.host, ['tc', '-d', 'class', 'show', 'dev', dev])).stdout.split('\n');
  const filters = (await lab.run(lab.host, ['tc', 'filter', 'show', 'dev', dev])).stdout;
  return {
    kind: root?.kind,
    default: root?.options?.default,
    queue: qdiscs.find(({ kind }) => kind === 'bfifo')?.options.limit,
    classes: classes.flatMap(line => {
      const found = /class htb (\S+) .*quantum (\d+) .*?rate (\S+) ceil (\S+)/.exec(line);
      return found ? [found.slice(1, 5).join(' ')] : [];
    }),
    filters: Array.from(
      filters.matchAll(/protocol (\S+) pref (\d+) .*flowid (\S+).*\n((?:\s+match .*\n)+)/g),
      one => {
        const [, protocol, pref, flowid, matches = ''] = one;
        return `${pref} ${protocol} ${matches.trim().replace(/\s+(match )?/g, ' ')} ${flowid}`;
      },
    ),
  };
}

async function ifbOf(lab: Lab): Promise<string> {
  return (await lab.ip(lab.host, 'link', 'show', 'type', 'ifb'))[0]?.ifname;
}

/** Gives the host the addresses, and the pod the way to them. */
async function reachable(lab: Lab): Promise<Pod> {
  const pod = await connect(lab);
  await lab.ip(lab.host, 'link', 'add', 'peers', 'type', 'bridge');
  await lab.ip(lab.host, 'link', 'set', 'peers', 'up');
  for (const address of [NAMED, OTHERS]) {
    await lab.ip(lab.host, 'addr', 'add', `${address.v4}/32`, 'dev', 'peers');
    await lab.ip(lab.host, 'addr', 'add', `${address.v6}/128`, 'dev', 'peers', 'nodad');
  }
  await lab.ip(pod.container, 'route', 'add', 'default', 'via', '10.77.1.1');
  await lab.ip(pod.container, '-6', 'route', 'add', 'default', 'via', 'fd77:1::1');
  return pod;
}

function describeKernel(title: string, body: () => void): void {
  describeRoot(title, body, requiresLinkKind('ifb'));
}

describeKernel('bandwidth ADD with subnets', () => {
  test.each(['1.0.0', '1.1.0'])(
    '[%s] ADD creates a tree in each direction, CHECK succeeds, DEL removes everything',
    async cniVersion => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const before = await lab.dump(lab.host);
        for (const [limits, ours] of [
          [UNSHAPED, { default: '0x30', class: '1:1' }],
          [SHAPED, { default: '0x1', class: '1:30' }],
        ] as const) {
          const added = await succeed(lab, callOf('ADD', pod, limits, { cniVersion }));
          const ifb = added.interfaces[2].name;
          const fast = '1:1 200000 800Gbit 800Gbit';
          expect(await treeOf(lab, pod.veth)).toEqual({
            kind: 'htb',
            default: ours.default,
            queue: 187_500,
            classes: expect.arrayContaining([fast, '1:30 200000 20Mbit 20Mbit']),
            filters: [
              `15 ipv6 match fd780000/ffffffff at 8 00000000/ffffffff at 12 ${ours.class}`,
              `16 ip match 0a4e0000/ffff0000 at 12 ${ours.class}`,
            ],
          });
          expect(await treeOf(lab, ifb)).toEqual({
            kind: 'htb',
            default: ours.default,
            queue: 156_250,
            classes: expect.arrayContaining([fast, '1:30 125000 10Mbit 10Mbit']),
            filters: [
              `15 ipv6 match fd780000/ffffffff at 24 00000000/ffffffff at 28 ${ours.class}`,
              `16 ip match 0a4e0000/ffff0000 at 16 ${ours.class}`,
            ],
          });
          const prevResult = added;
          await succeed(lab, callOf('CHECK', pod, limits, { cniVersion, prevResult }));
          const state = await shapingOf(lab);
          expect(await succeed(lab, callOf('ADD', pod, limits, { cniVersion }))).toEqual(added);
          expect(await shapingOf(lab)).toEqual(state);
          await succeed(lab, callOf('DEL', pod, limits, { cniVersion, prevResult }));
          expect(await lab.dump(lab.host)).toEqual(before);
          await succeed(lab, callOf('DEL', pod, limits, { cniVersion, prevResult }));
        }
      });
    },
  );

  test('ADD replaces a bucket by a tree, a tree by another, and a tree by a bucket', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      const other = { ...BOTH, egressRate: 30 * MBIT, shapedSubnets: ['192.0.2.0/24'] };
      for (const limits of [BOTH, UNSHAPED, other, SHAPED, BOTH]) {
        await succeed(lab, callOf('ADD', pod, limits));
        await succeed(lab, callOf('CHECK', pod, limits));
        const kind = limits === BOTH ? 'tbf' : 'htb';
        expect([(await treeOf(lab, pod.veth)).kind, (await treeOf(lab, await ifbOf(lab))).kind]).toEqual([
          kind,
          kind,
        ]);
      }
      await succeed(lab, callOf('ADD', pod, { ...SHAPED, ingressRate: 0, ingressBurst: 0 }));
      expect(await treeOf(lab, pod.veth)).toMatchObject({ kind: 'noqueue' });
      // No limits in DEL: existing ones are deleted anyway.
      await succeed(lab, callOf('DEL', pod, {}));
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('accepts many subnets, duplicates, and the whole address space', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const many = Array.from({ length: 300 }, (_, i) => `10.${i % 250}.${i >> 1}.7/24`);
      const unshapedSubnets = [...many, ...many, '2001:db8::7/128', '0.0.0.0/0', '::/0'];
      const limits = { ingressRate: MBIT, unshapedSubnets };
      await succeed(lab, callOf('ADD', pod, limits));
      await succeed(lab, callOf('CHECK', pod, limits));
      const filters = await lab.tc(lab.host, 'filter', 'show', 'dev', pod.veth, 'parent', '1:');
      expect(filters.filter(({ options }) => options?.match)).toHaveLength(303);
      await succeed(lab, callOf('DEL', pod, limits));
      expect(await treeOf(lab, pod.veth)).toMatchObject({ kind: 'noqueue' });
    });
  });

  test('leaves a foreign tree alone', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const add = (what: string, ...args: string[]) =>
        lab.tc(lab.host, what, 'add', 'dev', pod.veth, ...args);
      await add('qdisc', 'root', 'handle', '1:', 'htb', 'default', '30');
      await add('class', 'parent', '1:', 'classid', '1:1', 'htb', 'rate', '6mbit', 'quantum', '1500');
      await add('class', 'parent', '1:1', 'classid', '1:30', 'htb', 'rate', '3mbit', 'quantum', '1500');
      const before = await lab.dump(lab.host);
      const message =
        'Cannot limit "veth1": it has a foreign root qdisc "htb" (handle "1:"); remove it first';
      for (const limits of [UNSHAPED, BOTH]) {
        expect(await fail(lab, callOf('ADD', pod, limits))).toBe(message);
        await succeed(lab, callOf('DEL', pod, limits));
        expect(await lab.dump(lab.host)).toEqual(before);
      }
    });
  });

  test('adds its redirect next to foreign filters that have the first preference', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await lab.tc(lab.host, 'qdisc', 'add', 'dev', pod.veth, 'clsact');
      const first = ['dev', pod.veth, 'ingress', 'pref', '1', 'protocol', 'ip', 'u32'];
      await lab.tc(lab.host, 'filter', 'add', ...first, 'match', 'ip', 'src', '192.0.2.1', 'classid', '1:2');
      const before = await lab.dump(lab.host);
      for (const limits of [BOTH, UNSHAPED]) {
        await succeed(lab, callOf('ADD', pod, limits));
        await succeed(lab, callOf('CHECK', pod, limits));
        expect(await ping(lab, pod.container, '10.77.1.1')).toBe(true);
        await succeed(lab, callOf('DEL', pod, limits));
        expect(await lab.dump(lab.host)).toEqual(before);
      }
    });
  });
});

describeKernel('bandwidth STATUS with subnets', () => {
  test('STATUS also requires HTB support, and changes nothing', async () => {
    await withHost(async lab => {
      const before = await lab.dump(lab.host);
      const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bandwidth', unshapedSubnets: SUBNETS };
      await succeed(lab, { command: 'STATUS', conf });
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });
});

describeKernel('bandwidth CHECK with subnets', () => {
  type Damage = (lab: Lab, veth: string, ifb: string) => Promise<unknown>;
  const change =
    (what: string, verb: string, ...args: string[]): Damage =>
    (lab, veth) =>
      lab.tc(lab.host, what, verb, 'dev', veth, ...args);
  const damages: [string, Damage, string][] = [
    ['the tree was removed', change('qdisc', 'del', 'root'), 'its root qdisc is the default, not "htb"'],
    [
      'the rate was changed',
      change(
        'class',
        'change',
        'classid',
        '1:30',
        'htb',
        'rate',
        '9mbit',
        'burst',
        '125000',
        'quantum',
        '200000',
      ),
      'limited class: expected rate 20000000 bit/s, buffer 781250 ticks, quantum 200000 bytes, found rate 9000000 bit/s',
    ],
    [
      'the other class was limited',
      change(
        'class',
        'change',
        'classid',
        '1:1',
        'htb',
        'rate',
        '800gbit',
        'ceil',
        '900gbit',
        'quantum',
        '200000',
      ),
      'unlimited class: expected rate 800000000000 bit/s, buffer 4294967295 ticks',
    ],
    [
      'a filter is gone',
      change('filter', 'del', 'parent', '1:', 'pref', '15'),
      'filter for source fd78::/64: expected one, found none',
    ],
    [
      'there is a filter too many',
      change(
        ...(['filter', 'add', 'parent', '1:', 'pref', '3', 'protocol', 'ip'] as const),
        ...['u32', 'match', 'ip', 'src', '0.0.0.0/0', 'flowid', '1:1'],
      ),
      'filter of kind "u32" and preference 3: expected none',
    ],
    [
      'the queue was lengthened',
      change('qdisc', 'change', 'parent', '1:30', 'handle', '30:', 'bfifo', 'limit', '999999'),
      'queue: expected 187500 bytes, found 999999 bytes',
    ],
    [
      'the class of the other direction is gone',
      async (lab, _, ifb) => {
        await lab.tc(lab.host, 'filter', 'del', 'dev', ifb, 'parent', '1:');
        await lab.tc(lab.host, 'class', 'del', 'dev', ifb, 'classid', '1:1');
      },
      'unlimited class: expected rate 800000000000 bit/s, buffer 4294967295 ticks, quantum 200000 bytes, found none',
    ],
    [
      'the IFB device is gone',
      (lab, _, ifb) => lab.ip(lab.host, 'link', 'del', ifb),
      'its IFB device does not exist',
    ],
  ];

  test.each(damages)('fails when %s', async (_title, damage, message) => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const { interfaces } = await succeed(lab, callOf('ADD', pod, UNSHAPED));
      await succeed(lab, callOf('CHECK', pod, UNSHAPED));
      await damage(lab, pod.veth, interfaces[2].name);
      expect(await fail(lab, callOf('CHECK', pod, UNSHAPED))).toContain(message);
      await succeed(lab, callOf('ADD', pod, UNSHAPED));
      await succeed(lab, callOf('CHECK', pod, UNSHAPED));
    });
  });

  test('fails when other subnets, the other list or none are configured now', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await succeed(lab, callOf('ADD', pod, UNSHAPED));
      const fewer = { ...BOTH, unshapedSubnets: SUBNETS.slice(1) };
      expect(await fail(lab, callOf('CHECK', pod, fewer))).toContain('preference 16: expected none');
      expect(await fail(lab, callOf('CHECK', pod, SHAPED))).toContain(
        'default class: expected 1:1, found 1:30',
      );
      expect(await fail(lab, callOf('CHECK', pod, BOTH))).toContain('its root qdisc is "htb", not "tbf"');
    });
  });
});

describeKernel('bandwidth DEL with subnets', () => {
  test('removes both limits while the veth exists, without a result and with invalid limits', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      await succeed(lab, callOf('ADD', pod, SHAPED));
      const nonsense = { ...SHAPED, ...UNSHAPED, ingressRate: -5 };
      await succeed(lab, callOf('DEL', pod, nonsense, { prevResult: undefined }));
      expect(await lab.dump(lab.host)).toEqual(before);
      expect(await ping(lab, pod.container, '10.77.1.1')).toBe(true);
    });
  });

  test('finds the veth through prevResult without a namespace, and the IFB device without either', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      await succeed(lab, callOf('ADD', pod, SHAPED));
      await succeed(lab, callOf('DEL', pod, SHAPED, { env: { CNI_NETNS: '' } }));
      expect(await lab.dump(lab.host)).toEqual(before);
      await succeed(lab, callOf('ADD', pod, SHAPED));
      await lab.remove(pod.container);
      await succeed(lab, callOf('DEL', pod, SHAPED, { prevResult: undefined }));
      expect(await ifbOf(lab)).toBeUndefined();
    });
  });
});

describe('bandwidth with subnets and the reference', () => {
  /** What release 1.5 made, for which `tc` stands in: no release with it is packaged. */
  async function addAsReference(lab: Lab, pod: Pod, { shaped }: { shaped: boolean }): Promise<void> {
    const hash = new Bun.CryptoHasher('sha512').update(`podnet${pod.container.id}`).digest('hex');
    const ifb = `bwp${hash.slice(0, 12)}`;
    const ip = (line: string) => lab.ip(lab.host, ...line.split(' '));
    const tc = (line: string) => lab.tc(lab.host, ...line.split(' '));
    await ip(`link add ${ifb} mtu 1500 txqueuelen 1000 type ifb`);
    await ip(`link set ${ifb} up`);
    const [other, flowid] = shaped ? ['1', '1:30'] : ['30', '1:1'];
    for (const [dev, rate] of [
      [pod.veth, 20],
      [ifb, 10],
    ] as const) {
      const speed = `rate ${rate}mbit ceil ${rate * 2}mbit burst 125000`;
      await tc(`qdisc add dev ${dev} root handle 1: htb default ${other}`);
      await tc(`class add dev ${dev} parent 1: classid 1:30 htb ${speed}`);
      await tc(`class add dev ${dev} parent 1: classid 1:1 htb rate 800gbit burst 1 cburst 1`);
      const filter = `filter add dev ${dev} parent 1: pref`;
      await tc(`${filter} 16 protocol ip u32 match ip dst ${SUBNETS[0]} flowid ${flowid}`);
      await tc(`${filter} 15 protocol ipv6 u32 match ip6 dst ${SUBNETS[1]} flowid ${flowid}`);
    }
    await tc(`qdisc add dev ${pod.veth} ingress`);
    const all = 'protocol all u32 match u32 0 0 classid 1:1';
    await tc(
      `filter add dev ${pod.veth} parent ffff: pref 1 ${all} action mirred egress redirect dev ${ifb}`,
    );
  }

  const needs = requiresLinkKind('ifb');

  testNeeding(
    'CHECK takes the tree of release 1.5 for right, ADD replaces it, DEL takes it away',
    async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const before = await lab.dump(lab.host);
        for (const [limits, shaped] of [
          [UNSHAPED, false],
          [SHAPED, true],
        ] as const) {
          await addAsReference(lab, pod, { shaped });
          await succeed(lab, callOf('CHECK', pod, limits));
          expect(await fail(lab, callOf('CHECK', pod, { ...limits, ingressRate: 21 * MBIT }))).toContain(
            'expected rate 21000000 bit/s',
          );
          await succeed(lab, callOf('DEL', pod, limits));
          expect(await lab.dump(lab.host)).toEqual(before);
          await addAsReference(lab, pod, { shaped });
          await succeed(lab, callOf('ADD', pod, limits));
          await succeed(lab, callOf('CHECK', pod, limits));
          expect((await treeOf(lab, pod.veth)).queue).toBe(187_500);
          await succeed(lab, callOf('DEL', pod, limits));
          expect(await lab.dump(lab.host)).toEqual(before);
        }
      });
    },
    needs,
  );

  testNeeding(
    'CHECK and DEL of other releases, which do not know the lists, take our tree',
    async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const reference = { binDir: REFERENCE_BIN_DIR };
        const prevResult = await succeed(lab, callOf('ADD', pod, UNSHAPED));
        await succeed(lab, callOf('CHECK', pod, UNSHAPED, { ...reference, prevResult }));
        await succeed(lab, callOf('DEL', pod, UNSHAPED, { ...reference, prevResult }));
        expect(await ifbOf(lab)).toBeUndefined();
        // What it leaves is ours to take away.
        await succeed(lab, callOf('DEL', pod, UNSHAPED, { prevResult }));
        expect(await treeOf(lab, pod.veth)).toMatchObject({ kind: 'noqueue' });
        await succeed(lab, callOf('ADD', pod, UNSHAPED, reference));
        expect(await fail(lab, callOf('CHECK', pod, UNSHAPED))).toContain(
          'its root qdisc is "tbf", not "htb"',
        );
        await succeed(lab, callOf('DEL', pod, UNSHAPED));
        expect(await ping(lab, pod.container, '10.77.1.1')).toBe(true);
      });
    },
    requiresReference('bandwidth') ?? needs,
  );
});

describeKernel('bandwidth with subnets on the wire', () => {
  test.each([
    ['v4', 'unshapedSubnets'],
    ['v6', 'unshapedSubnets'],
    ['v4', 'shapedSubnets'],
    ['v6', 'shapedSubnets'],
  ] as const)(
    'over IP%s limits traffic both ways as %s say, and no other',
    async (family, list) => {
      await withHost(async lab => {
        const pod = await reachable(lab);
        await succeed(lab, callOf('ADD', pod, { ...BOTH, [list]: SUBNETS }));
        const [limited, free] = list === 'shapedSubnets' ? [NAMED, OTHERS] : [OTHERS, NAMED];
        const towards = (address: string) =>
          measureRate(lab, { from: lab.host, to: pod.container, address, connect: 'receiver' });
        const from = (address: string) => measureRate(lab, { from: pod.container, to: lab.host, address });
        for (const [measure, rateBits] of [
          [towards, BOTH.ingressRate],
          [from, BOTH.egressRate],
        ] as const) {
          const share = async (address: string) => ((await measure(address)) * 8) / rateBits;
          const slow = await steadily(
            () => share(limited[family]),
            value => value > 0.7 && value < 1.15,
          );
          expect(slow).toBeGreaterThan(0.7);
          expect(slow).toBeLessThan(1.15);
          const fast = await steadily(
            () => share(free[family]),
            value => value > 4,
          );
          expect(fast).toBeGreaterThan(4);
        }
      });
    },
    deadline(60_000),
  );
});
