// Does the bandwidth plugin limit what a real kernel sends, and does it take all of it back?
import { describe, expect, test } from 'bun:test';
import { connect, type Pod, shapingOf } from '../helpers/connected-pod.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, type Row, untilUp, withHost } from '../helpers/netns.ts';
import { BIN_DIR, type PluginCall, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresLinkKind, requiresReference, testNeeding } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { measureRate, ping, steadily } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const MBIT = 1_000_000;
const BOTH = {
  ingressRate: 8 * MBIT,
  ingressBurst: 2 * MBIT,
  egressRate: 4 * MBIT,
  egressBurst: 1 * MBIT,
};

function callOf(
  command: string,
  pod: Pod,
  limits: object = BOTH,
  more: Partial<PluginCall> = {},
): PluginCall {
  const conf = { cniVersion: '1.0.0', name: 'podnet', type: 'bandwidth', ...limits };
  return { command, conf, container: pod.container, ifname: pod.ifname, prevResult: pod.prevResult, ...more };
}

async function succeed(lab: Lab, call: PluginCall) {
  const reply = await lab.plugin('bandwidth', call);
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

/** As another program might do. */
async function rename(lab: Lab, ifb: string): Promise<void> {
  await lab.ip(lab.host, 'link', 'set', ifb, 'down');
  await lab.ip(lab.host, 'link', 'set', ifb, 'name', 'shaper0');
}

async function fail(lab: Lab, call: PluginCall): Promise<string> {
  const reply = await lab.plugin('bandwidth', call);
  expect(reply.exitCode).toBe(1);
  return reply.error?.msg ?? '';
}

async function rootOf(lab: Lab, dev: string): Promise<Row | undefined> {
  return (await lab.tc(lab.host, 'qdisc', 'show', 'dev', dev, 'root'))[0];
}

async function ifbsOf(lab: Lab): Promise<Row[]> {
  return await lab.ip(lab.host, 'link', 'show', 'type', 'ifb');
}

/** Devices to which what comes into a device is redirected. */
async function redirectsOf(lab: Lab, dev: string): Promise<string[]> {
  const filters = await lab.tc(lab.host, 'filter', 'show', 'dev', dev, 'ingress');
  return filters.flatMap(({ options }) => (options?.actions ?? []).map((action: Row) => action.to_dev));
}

function describeKernel(title: string, body: () => void): void {
  describeRoot(title, body, requiresLinkKind('ifb'));
}

describeKernel('bandwidth ADD', () => {
  test('ADD limits both directions, CHECK succeeds, DEL removes everything', async () => {
    const cniVersion = LATEST_SPEC_VERSION;
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      const prevResult = { ...pod.prevResult, cniVersion };
      const versioned = { ...BOTH, cniVersion };
      const result = await succeed(lab, callOf('ADD', pod, versioned, { prevResult }));

      const [ifb, ...more] = await ifbsOf(lab);
      expect(more).toEqual([]);
      // A copy: matchers such as stringMatching take the place of what they matched in the object they are given.
      expect(structuredClone(ifb)).toMatchObject({
        ifname: expect.stringMatching(/^bwp[0-9a-f]{12}$/),
        flags: expect.arrayContaining(['UP']),
        mtu: 1500,
        txqlen: 1000,
        ifalias: `catena:podnet/${pod.container.id}/eth0`,
      });
      expect(result).toMatchObject({
        cniVersion,
        interfaces: [...prevResult.interfaces, { name: ifb?.ifname, mac: ifb?.address }],
        ips: prevResult.ips,
      });
      expect(await rootOf(lab, pod.veth)).toMatchObject({
        kind: 'tbf',
        handle: '1:',
        options: { rate: 1_000_000, burst: '250000b/1', lat: 25_000 },
      });
      expect(await rootOf(lab, ifb?.ifname)).toMatchObject({
        kind: 'tbf',
        handle: '1:',
        options: { rate: 500_000, burst: '125000b/1', lat: 25_000 },
      });
      expect(await redirectsOf(lab, pod.veth)).toEqual([ifb?.ifname]);

      await succeed(lab, callOf('CHECK', pod, versioned, { prevResult: result }));
      await succeed(lab, callOf('DEL', pod, versioned, { prevResult: result }));
      expect(await lab.dump(lab.host)).toEqual(before);
      await succeed(lab, callOf('DEL', pod, versioned, { prevResult: result }));
    });
  });

  test('limits one direction only', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const { ingressRate, ingressBurst, egressRate, egressBurst } = BOTH;
      const result = await succeed(lab, callOf('ADD', pod, { ingressRate, ingressBurst }));
      expect(result.interfaces).toEqual(pod.prevResult.interfaces);
      expect(await rootOf(lab, pod.veth)).toMatchObject({ kind: 'tbf' });
      expect(await ifbsOf(lab)).toEqual([]);

      // Limits that changed replace those that were: the other direction is free now.
      await succeed(lab, callOf('ADD', pod, { egressRate, egressBurst }));
      expect(await rootOf(lab, pod.veth)).toMatchObject({ kind: 'noqueue' });
      expect(await redirectsOf(lab, pod.veth)).toHaveLength(1);
      await succeed(lab, callOf('CHECK', pod, { egressRate, egressBurst }));
      await succeed(lab, callOf('ADD', pod, { ingressRate, ingressBurst }));
      expect(await ifbsOf(lab)).toEqual([]);
      expect(await redirectsOf(lab, pod.veth)).toEqual([]);
    });
  });

  test('a second ADD changes nothing, and a new rate replaces the old one', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const first = await succeed(lab, callOf('ADD', pod));
      const before = await shapingOf(lab);
      expect(await succeed(lab, callOf('ADD', pod))).toEqual(first);
      expect(await shapingOf(lab)).toEqual(before);
      await succeed(lab, callOf('ADD', pod, { ...BOTH, egressRate: 16 * MBIT }));
      expect(await rootOf(lab, first.interfaces[2].name)).toMatchObject({ options: { rate: 2 * MBIT } });
    });
  });

  test('a second ADD restores the redirect after its device was deleted', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const { interfaces } = await succeed(lab, callOf('ADD', pod));
      await lab.ip(lab.host, 'link', 'delete', interfaces[2].name);
      expect(await redirectsOf(lab, pod.veth)).toEqual(['*']);
      await succeed(lab, callOf('ADD', pod));
      expect(await redirectsOf(lab, pod.veth)).toEqual([interfaces[2].name]);
      expect(await ping(lab, pod.container, '10.77.1.1')).toBe(true);
    });
  });

  test('gives the IFB device the MTU of the host end', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await lab.ip(lab.host, 'link', 'set', pod.veth, 'mtu', '9000');
      await succeed(lab, callOf('ADD', pod));
      expect(await ifbsOf(lab)).toMatchObject([{ mtu: 9000 }]);
    });
  });

  test('without limits, ADD returns prevResult and changes nothing', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      for (const limits of [
        {},
        { ingressRate: 0, ingressBurst: 0 },
        // A key of the configuration itself, even 0, keeps the runtime's values out.
        { egressRate: 0, runtimeConfig: { bandwidth: BOTH } },
      ]) {
        expect(await succeed(lab, callOf('ADD', pod, limits))).toEqual(pod.prevResult);
        await succeed(lab, callOf('CHECK', pod, limits));
        expect(await lab.dump(lab.host)).toEqual(before);
      }
    });
  });

  test('raises a burst that is smaller than a full frame', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const small = { ingressRate: MBIT, ingressBurst: 800, egressRate: MBIT, egressBurst: 800 };
      const reply = await lab.plugin('bandwidth', callOf('ADD', pod, small));
      expect(reply.exitCode).toBe(0);
      expect(reply.stderr).toContain('ingressBurst is smaller than a frame and was raised');
      expect(await ping(lab, lab.host, pod.v4, '-s', '1472', '-M', 'do')).toBe(true);
      await succeed(lab, callOf('CHECK', pod, small));
    });
  });

  test('accepts units and derives bursts, and traffic obeys them', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const limits = { ingressRate: '40Mbit', egressRate: '2.5MB/s', egressBurst: '64KiB' };
      await succeed(lab, callOf('ADD', pod, limits));
      const [ifb] = await ifbsOf(lab);
      expect(await rootOf(lab, pod.veth)).toMatchObject({
        options: { rate: 5_000_000, burst: '125000b/1', lat: 25_000 },
      });
      expect(await rootOf(lab, ifb?.ifname)).toMatchObject({ options: { rate: 2_500_000, burst: '64Kb/1' } });
      await succeed(lab, callOf('CHECK', pod, limits));
      const share = await steadily(
        async () => (await measureRate(lab, { from: lab.host, to: pod.container, address: pod.v4 })) / 5e6,
        value => value > 0.7 && value < 1.1,
      );
      expect(share).toBeLessThan(1.1);
      expect(share).toBeGreaterThan(0.7);
      expect((await lab.plugin('bandwidth', callOf('ADD', pod, { ingressRate: '8kbit' }))).stderr).toBe('');
      expect(await ping(lab, lab.host, pod.v4, '-s', '1472', '-M', 'do')).toBe(true);
    });
  });

  test('warns of a burst that passes all traffic for long', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const any = { egressRate: MBIT, egressBurst: 2 ** 31 - 1 };
      const reply = await lab.plugin('bandwidth', callOf('ADD', pod, any));
      expect(reply.exitCode).toBe(0);
      expect(reply.stderr).toContain('egressBurst passes all traffic for a while');
      expect((await lab.plugin('bandwidth', callOf('ADD', pod))).stderr).toBe('');
    });
  });

  test('shares a foreign clsact qdisc, and DEL leaves it and its filters', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await lab.tc(lab.host, 'qdisc', 'add', 'dev', pod.veth, 'clsact');
      const other = ['dev', pod.veth, 'ingress', 'pref', '7', 'protocol', 'ip', 'u32'];
      await lab.tc(lab.host, 'filter', 'add', ...other, 'match', 'ip', 'src', '192.0.2.1', 'classid', '1:2');
      const before = await lab.dump(lab.host);
      await succeed(lab, callOf('ADD', pod));
      expect(await redirectsOf(lab, pod.veth)).toHaveLength(1);
      await succeed(lab, callOf('CHECK', pod));
      await succeed(lab, callOf('DEL', pod));
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  // The longest leaves no room for a whole container id in an alias.
  for (const name of ['podnet', 'n'.repeat(190)]) {
    test(`keeps two attachments of one container to one network apart, its name having ${name.length} characters`, async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const container = { ...pod.container, id: 'c'.repeat(64) };
        const first = { ...pod, container };
        const second = { ...(await connect(lab, 2, pod.container, 'net1')), container };
        await succeed(lab, callOf('ADD', first, { ...BOTH, name }));
        await succeed(lab, callOf('ADD', second, { ...BOTH, name, egressRate: 8 * MBIT }));
        expect(await ifbsOf(lab)).toHaveLength(2);
        await succeed(lab, callOf('CHECK', first, { ...BOTH, name }));
        await succeed(lab, callOf('DEL', second, { ...BOTH, name }));
        await succeed(lab, callOf('CHECK', first, { ...BOTH, name }));
        const ifalias = expect.stringMatching(new RegExp(`^catena:${name}/(c{64}|~[0-9a-f]{32})/eth0$`));
        expect(await ifbsOf(lab)).toMatchObject([{ ifalias }]);
      });
    });
  }
});

describeKernel('bandwidth ADD failing', () => {
  test('a failing ADD leaves nothing behind', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      // Devices of another kind sit on both names that the IFB device may have.
      const { interfaces } = await succeed(lab, callOf('ADD', pod));
      await succeed(lab, callOf('DEL', pod));
      const hash = new Bun.CryptoHasher('sha512').update(`podnet${pod.container.id}eth0`).digest('hex');
      for (const name of [interfaces[2].name, `bwp${hash.slice(0, 12)}`]) {
        await lab.ip(lab.host, 'link', 'add', name, 'type', 'bridge');
      }
      const before = await lab.dump(lab.host);
      expect(await fail(lab, callOf('ADD', pod))).toContain('other attachments use both names');
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('treats a token bucket with another handle as foreign', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const bucket = ['tbf', 'rate', '1mbit', 'burst', '10000', 'limit', '20000'];
      await lab.tc(lab.host, 'qdisc', 'add', 'dev', pod.veth, 'root', 'handle', '7:', ...bucket);
      const before = await lab.dump(lab.host);
      expect(await fail(lab, callOf('ADD', pod))).toContain('a foreign root qdisc "tbf" (handle "7:")');
      await succeed(lab, callOf('DEL', pod));
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('warns when the configuration overrides limits from the runtime', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      for (const own of [{ ingressRate: 0 }, { ingressRate: MBIT }]) {
        const reply = await lab.plugin(
          'bandwidth',
          callOf('ADD', pod, { ...own, runtimeConfig: { bandwidth: BOTH } }),
        );
        expect(reply).toMatchObject({
          exitCode: 0,
          stderr: expect.stringContaining('ignoring the limits from the runtime'),
        });
      }
    });
  });

  test('refuses to replace a foreign root qdisc', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await lab.tc(lab.host, 'qdisc', 'add', 'dev', pod.veth, 'root', 'handle', '1:', 'pfifo');
      const before = await lab.dump(lab.host);
      expect(await fail(lab, callOf('ADD', pod))).toBe(
        'Cannot limit "veth1": it has a foreign root qdisc "pfifo" (handle "1:"); remove it first',
      );
      expect(await lab.dump(lab.host)).toEqual(before);
      await succeed(lab, callOf('DEL', pod));
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('reports which interface it cannot limit, and why', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      expect(await fail(lab, callOf('ADD', pod, BOTH, { prevResult: undefined }))).toContain(
        'must be called as a chained plugin',
      );
      expect(await fail(lab, callOf('ADD', pod, {}, { prevResult: undefined }))).toContain(
        'must be called as a chained plugin',
      );
      expect(await fail(lab, callOf('ADD', { ...pod, ifname: 'lo' }))).toBe(
        `Cannot limit interface "lo" in "${pod.container.path}": it is the loopback device`,
      );
      expect(await fail(lab, callOf('ADD', { ...pod, ifname: 'eth5' }))).toContain(
        'there is no such interface',
      );
    });
  });
});

describeKernel('bandwidth without a host end of this chain', () => {
  /** An interface of a container that another container reaches, without a device on the host that this chain has made. */
  const KINDS: Record<string, (lab: Lab, pod: Container, other: Container) => Promise<unknown>> = {
    macvlan: async (lab, pod, other) => {
      await lab.ip(
        lab.host,
        'link',
        'add',
        'up0',
        'type',
        'veth',
        'peer',
        'name',
        'eth0',
        'netns',
        other.name,
      );
      await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
      await lab.ip(lab.host, 'link', 'add', 'mv0', 'link', 'up0', 'type', 'macvlan', 'mode', 'bridge');
      await lab.ip(lab.host, 'link', 'set', 'mv0', 'netns', pod.name, 'name', 'eth0');
    },
    'device moved by host-device': async (lab, pod, other) => {
      await lab.ip(
        lab.host,
        'link',
        'add',
        'dev0',
        'type',
        'veth',
        'peer',
        'name',
        'eth0',
        'netns',
        other.name,
      );
      await lab.ip(lab.host, 'link', 'set', 'dev0', 'netns', pod.name, 'name', 'eth0');
    },
  };

  async function place(lab: Lab, kind: string) {
    const [container, other] = [await lab.container(), await lab.container()];
    await KINDS[kind]?.(lab, container, other);
    for (const [ns, last] of [
      [container, 2],
      [other, 1],
    ] as const) {
      await lab.ip(ns, 'addr', 'add', `10.77.1.${last}/24`, 'dev', 'eth0');
      await lab.ip(ns, 'link', 'set', 'eth0', 'addrgenmode', 'none', 'up');
    }
    await untilUp(container, 'eth0');
    const prevResult = {
      cniVersion: '1.0.0',
      interfaces: [{ name: 'eth0', sandbox: container.path }],
      ips: [],
    };
    const pod: Pod = { container, ifname: 'eth0', veth: '', v4: '10.77.1.2', v6: '', prevResult };
    return { pod, other };
  }

  test.each(Object.keys(KINDS))(
    'limits a %s in the container, in both directions, and lets it go',
    async kind => {
      await withHost(async lab => {
        const { pod, other } = await place(lab, kind);
        const before = { host: await shapingOf(lab), inside: await lab.dump(pod.container) };
        const result = await succeed(lab, callOf('ADD', pod));
        // What it needs in the container is not an interface of the container's.
        expect(result.interfaces).toEqual(pod.prevResult.interfaces);
        expect(await shapingOf(lab)).toEqual(before.host);
        const [ifb, ...more] = await lab.ip(pod.container, 'link', 'show', 'type', 'ifb');
        expect([ifb?.ifalias, more]).toEqual([`catena:podnet/${pod.container.id}/eth0`, []]);
        const rootIn = async (dev: string) =>
          (await lab.tc(pod.container, 'qdisc', 'show', 'dev', dev, 'root'))[0];
        expect(await rootIn('eth0')).toMatchObject({ kind: 'tbf', options: { rate: BOTH.egressRate / 8 } });
        expect(await rootIn(ifb?.ifname)).toMatchObject({
          kind: 'tbf',
          options: { rate: BOTH.ingressRate / 8 },
        });
        await succeed(lab, callOf('CHECK', pod));

        const towards = await steadily(
          () => measureRate(lab, { from: other, to: pod.container, address: pod.v4 }),
          bytes => bytes * 8 < BOTH.ingressRate * 1.25 && bytes * 16 > BOTH.egressRate,
        );
        const away = await steadily(
          () => measureRate(lab, { from: pod.container, to: other, address: '10.77.1.1' }),
          bytes => bytes * 8 < BOTH.egressRate * 1.25 && bytes * 32 > BOTH.egressRate,
        );
        // A full bucket passes first: 2 Mbit on 16, 1 Mbit on 8.
        expect(towards * 8).toBeLessThan(BOTH.ingressRate * 1.25);
        expect(away * 8).toBeLessThan(BOTH.egressRate * 1.25);
        expect(Math.min(towards * 2, away * 4)).toBeGreaterThan(BOTH.egressRate / 8);

        await lab.tc(pod.container, 'filter', 'del', 'dev', 'eth0', 'ingress');
        expect(await fail(lab, callOf('CHECK', pod))).toBe(
          `Cannot confirm the ingress limit on "eth0": no filter redirects its ingress traffic to "${ifb?.ifname}"`,
        );
        await succeed(lab, callOf('CHECK', pod, BOTH, { env: { CATENA_REPAIR: '1' } }));
        await succeed(lab, callOf('CHECK', pod));

        await succeed(lab, callOf('DEL', pod));
        expect({ host: await shapingOf(lab), inside: await lab.dump(pod.container) }).toEqual(before);
        await succeed(lab, callOf('DEL', pod));
      });
    },
  );

  test('DEL finds its device in the container also if the container has renamed the interface', async () => {
    await withHost(async lab => {
      const { pod } = await place(lab, 'device moved by host-device');
      await succeed(lab, callOf('ADD', pod));
      await lab.batch(pod.container, 'link set eth0 down', 'link set eth0 name mine');
      await succeed(lab, callOf('DEL', pod));
      expect(await lab.ip(pod.container, 'link', 'show', 'type', 'ifb')).toEqual([]);
    });
  });

  test('limits a tap as the host end of the machine behind it', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.run(container, ['ip', 'tuntap', 'add', 'eth0', 'mode', 'tap']);
      await lab.ip(container, 'link', 'set', 'eth0', 'addrgenmode', 'none', 'up');
      const prevResult = {
        cniVersion: '1.0.0',
        interfaces: [{ name: 'eth0', sandbox: container.path }],
        ips: [],
      };
      const pod: Pod = { container, ifname: 'eth0', veth: '', v4: '', v6: '', prevResult };
      const before = await lab.dump(container);
      const { ingressRate, egressRate } = BOTH;
      await succeed(lab, callOf('ADD', pod, { ingressRate }));
      const roots = await lab.tc(container, 'qdisc', 'show', 'dev', 'eth0', 'root');
      expect(roots).toMatchObject([{ kind: 'tbf', options: { rate: ingressRate / 8 } }]);
      await succeed(lab, callOf('ADD', pod, { egressRate }));
      expect(await lab.ip(container, 'link', 'show', 'type', 'ifb')).toHaveLength(1);
      await succeed(lab, callOf('DEL', pod));
      expect(await lab.dump(container)).toEqual(before);
    });
  });

  test('undoes what it did in the container when a step fails', async () => {
    await withHost(async lab => {
      const { pod } = await place(lab, 'macvlan');
      await lab.tc(pod.container, 'qdisc', 'add', 'dev', 'eth0', 'root', 'handle', '1:', 'pfifo');
      const before = await lab.dump(pod.container);
      expect(await fail(lab, callOf('ADD', pod))).toContain('it has a foreign root qdisc "pfifo"');
      expect(await lab.dump(pod.container)).toEqual(before);
    });
  });
});

describeKernel('bandwidth CHECK', () => {
  const damages: [string, (lab: Lab, veth: string, ifb: string) => Promise<unknown>, string][] = [
    [
      'the ingress limit was removed',
      (lab, veth) => lab.tc(lab.host, 'qdisc', 'del', 'dev', veth, 'root'),
      'its root qdisc is the default, not "tbf"',
    ],
    [
      'the ingress limit was changed',
      (lab, veth) =>
        lab.tc(
          lab.host,
          'qdisc',
          'change',
          'dev',
          veth,
          'root',
          'handle',
          '1:',
          'tbf',
          'rate',
          '9mbit',
          'burst',
          '250000',
          'limit',
          '300000',
        ),
      'found rate 9000000 bit/s',
    ],
    [
      'the egress limit was removed',
      (lab, _, ifb) => lab.tc(lab.host, 'qdisc', 'del', 'dev', ifb, 'root'),
      'not "tbf"',
    ],
    [
      'the egress limit was changed',
      (lab, _, ifb) =>
        lab.tc(
          lab.host,
          'qdisc',
          'replace',
          'dev',
          ifb,
          'root',
          'handle',
          '1:',
          'tbf',
          'rate',
          '4mbit',
          'burst',
          '125000',
          'limit',
          '150000',
        ),
      'found rate 4000000 bit/s, limit 150000',
    ],
    [
      'the IFB device is gone',
      (lab, _, ifb) => lab.ip(lab.host, 'link', 'del', ifb),
      'its IFB device does not exist',
    ],
    [
      'the IFB device is down',
      (lab, _, ifb) => lab.ip(lab.host, 'link', 'set', ifb, 'down'),
      'the device is down',
    ],
    [
      'the redirect was removed',
      (lab, veth) => lab.tc(lab.host, 'filter', 'del', 'dev', veth, 'ingress'),
      'no filter redirects its ingress traffic',
    ],
    [
      'the redirect is for one protocol only',
      async (lab, veth, ifb) => {
        await lab.tc(lab.host, 'filter', 'del', 'dev', veth, 'ingress');
        const all = 'u32 match u32 0 0 action mirred egress redirect dev'.split(' ');
        const place = ['dev', veth, 'ingress', 'pref', '1', 'protocol', 'ip'];
        await lab.tc(lab.host, 'filter', 'add', ...place, ...all, ifb);
      },
      'no filter redirects its ingress traffic',
    ],
    [
      'the ingress qdisc was removed',
      (lab, veth) => lab.tc(lab.host, 'qdisc', 'del', 'dev', veth, 'ingress'),
      'it has no ingress qdisc',
    ],
  ];

  test.each(damages)('fails when %s', async (_title, damage, message) => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const { interfaces } = await succeed(lab, callOf('ADD', pod));
      await succeed(lab, callOf('CHECK', pod));
      await damage(lab, pod.veth, interfaces[2].name);
      expect(await fail(lab, callOf('CHECK', pod))).toContain(message);
      await succeed(lab, callOf('ADD', pod));
      await succeed(lab, callOf('CHECK', pod));
      expect(await redirectsOf(lab, pod.veth)).toEqual([interfaces[2].name]);
    });
  });

  test('fails when the redirect has another target', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await succeed(lab, callOf('ADD', pod));
      const { host } = lab;
      await lab.ip(host, 'link', 'add', 'elsewhere', 'type', 'ifb');
      await lab.tc(host, 'filter', 'del', 'dev', pod.veth, 'ingress');
      const all = [
        'u32',
        'match',
        'u32',
        '0',
        '0',
        'action',
        'mirred',
        'egress',
        'redirect',
        'dev',
        'elsewhere',
      ];
      await lab.tc(host, 'filter', 'add', 'dev', pod.veth, 'ingress', 'pref', '1', 'protocol', 'all', ...all);
      expect(await fail(lab, callOf('CHECK', pod))).toContain('no filter redirects its ingress traffic');
    });
  });
});

describeKernel('bandwidth DEL', () => {
  test('removes the limits while the veth exists', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      await succeed(lab, callOf('ADD', pod));
      // Neither a result nor sensible numbers are needed: the namespace leads to the veth.
      await succeed(lab, callOf('DEL', pod, { ...BOTH, ingressRate: -5 }, { prevResult: undefined }));
      expect(await lab.dump(lab.host)).toEqual(before);
      expect(await ping(lab, pod.container, '10.77.1.1')).toBe(true);
    });
  });

  test('finds the veth through prevResult without a namespace', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      await succeed(lab, callOf('ADD', pod));
      await succeed(lab, callOf('DEL', pod, BOTH, { env: { CNI_NETNS: '' } }));
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('removes the IFB device when namespace and veth no longer exist', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await succeed(lab, callOf('ADD', pod));
      await lab.remove(pod.container);
      await succeed(lab, callOf('DEL', pod));
      expect(await ifbsOf(lab)).toEqual([]);
      await succeed(lab, callOf('DEL', pod, BOTH, { prevResult: undefined }));
    });
  });

  test('removes the limits although none are configured now', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      const { ingressRate, ingressBurst } = BOTH;
      await succeed(lab, callOf('ADD', pod, { ingressRate, ingressBurst }));
      await succeed(lab, callOf('DEL', pod, {}));
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('without a result finds a device that was renamed', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      const { interfaces } = await succeed(lab, callOf('ADD', pod));
      await rename(lab, interfaces[2].name);
      const { prevResult: _, ...del } = callOf('DEL', pod);
      await succeed(lab, del);
      expect(await ifbsOf(lab)).toEqual([]);
    });
  });

  test('of an attachment without limits changes nothing', async () => {
    await withHost(async lab => {
      const pod = await connect(lab);
      await lab.tc(lab.host, 'qdisc', 'add', 'dev', pod.veth, 'ingress');
      const before = await lab.dump(lab.host);
      await succeed(lab, callOf('DEL', pod));
      await succeed(lab, callOf('DEL', pod, {}));
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });
});

describeKernel('bandwidth GC', () => {
  test('removes devices of invalid attachments, of this network only', async () => {
    await withHost(async lab => {
      const [kept, gone, foreign] = [await connect(lab, 1), await connect(lab, 2), await connect(lab, 3)];
      await succeed(lab, callOf('ADD', kept));
      await rename(lab, (await succeed(lab, callOf('ADD', gone))).interfaces[2].name);
      await succeed(lab, callOf('ADD', foreign, { ...BOTH, name: 'othernet' }));
      await lab.ip(lab.host, 'link', 'add', 'bwp-of-others', 'type', 'ifb');
      const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bandwidth', ...BOTH };
      await succeed(lab, { command: 'GC', conf });
      expect(await ifbsOf(lab)).toHaveLength(4);
      const valid = [{ containerID: kept.container.id, ifname: 'eth0' }];
      await succeed(lab, { command: 'GC', conf: { ...conf, 'cni.dev/valid-attachments': valid } });
      const left = (await ifbsOf(lab)).map(({ ifalias }) => ifalias ?? '');
      expect(left.sort()).toEqual([
        '',
        `catena:othernet/${foreign.container.id}/eth0`,
        `catena:podnet/${kept.container.id}/eth0`,
      ]);
      await succeed(lab, callOf('CHECK', kept));
    });
  });
});

describe('bandwidth GC after the reference', () => {
  testNeeding(
    'removes devices without an alias to which nothing redirects, of any network',
    async () => {
      await withHost(async lab => {
        const reference = { binDir: REFERENCE_BIN_DIR };
        const [alive, gone, foreign] = [await connect(lab, 1), await connect(lab, 2), await connect(lab, 3)];
        const left = async () => (await ifbsOf(lab)).map(({ ifname }) => ifname);
        const ifbOf = async (pod: Pod, name = 'podnet') =>
          (await succeed(lab, callOf('ADD', pod, { ...BOTH, name }, reference))).interfaces[2].name;
        const [kept, stale] = [await ifbOf(alive), await ifbOf(gone)];
        const other = await ifbOf(foreign, 'othernet');
        // Nothing leads there either, but the attachment is valid: CHECK and repair are about such.
        const damaged = await connect(lab, 4);
        const valid = await ifbOf(damaged);
        await lab.tc(lab.host, 'qdisc', 'del', 'dev', damaged.veth, 'ingress');
        expect((await left()).sort()).toEqual([kept, stale, other, valid].sort());
        await lab.remove(gone.container);
        // The kernel removes the pair some time after the namespace.
        await until(async () => {
          const pairs: Row[] = await lab.ip(lab.host, 'link', 'show', 'type', 'veth');
          return !pairs.some(({ ifname }) => ifname === gone.veth);
        });
        const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bandwidth', ...BOTH };
        const attachments = [{ containerID: damaged.container.id, ifname: 'eth0' }];
        await succeed(lab, { command: 'GC', conf: { ...conf, 'cni.dev/valid-attachments': attachments } });
        expect((await left()).sort()).toEqual([kept, other, valid].sort());
        await succeed(lab, callOf('CHECK', alive));
      });
    },
    requiresReference('bandwidth') ?? requiresLinkKind('ifb'),
  );
});

describeKernel('bandwidth STATUS', () => {
  test('succeeds and changes nothing', async () => {
    await withHost(async lab => {
      const before = await lab.dump(lab.host);
      const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bandwidth' };
      await succeed(lab, { command: 'STATUS', conf });
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('fails with code 50 without the right to change the network', async () => {
    await withHost(async lab => {
      const conf = JSON.stringify({ cniVersion: '1.1.0', name: 'podnet', type: 'bandwidth' });
      const unprivileged = ['setpriv', '--bounding-set=-all', '--inh-caps=-all', '--no-new-privs'];
      const env = { CNI_COMMAND: 'STATUS', CNI_PATH: BIN_DIR };
      const reply = await lab.run(lab.host, [...unprivileged, `${BIN_DIR}/bandwidth`], { stdin: conf, env });
      expect(JSON.parse(reply.stdout)).toMatchObject({ code: 50, details: expect.stringContaining('EPERM') });
    });
  });
});

describe('bandwidth and the reference', () => {
  const reference = { binDir: REFERENCE_BIN_DIR };
  const needs = requiresReference('bandwidth') ?? requiresLinkKind('ifb');

  testNeeding(
    'ours and the reference take over from each other, even if the reference overflows or drops full frames',
    async () => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const before = await lab.dump(lab.host);
        for (const [ingressRate, ingressBurst] of [
          [MBIT, 2 ** 31 - 1],
          [1000, 34_359_738_359],
          [8000, 80],
        ] as const) {
          const limits = { ...BOTH, ingressRate, ingressBurst };
          await succeed(lab, callOf('ADD', pod, limits, reference));
          await succeed(lab, callOf('CHECK', pod, limits));
          await succeed(lab, callOf('ADD', pod, limits));
          await succeed(lab, callOf('CHECK', pod, limits));
          await succeed(lab, callOf('DEL', pod, limits));
          expect(await lab.dump(lab.host)).toEqual(before);
        }
        await succeed(lab, callOf('ADD', pod));
        await succeed(lab, callOf('DEL', pod, BOTH, reference));
        expect(await ifbsOf(lab)).toEqual([]);
      });
    },
    needs,
  );
});

describeKernel('bandwidth on the wire', () => {
  // Headers count for the limit and not for the receiver: 40 to 60 bytes of a frame of 1514.
  const within15Percent = (bytesPerSecond: number, rateBits: number): boolean =>
    Math.abs((bytesPerSecond * 8) / rateBits - 1) <= 0.15;

  test.each(['v4', 'v6'] as const)(
    'limits a transfer to the configured rate in each direction (IP%s)',
    async family => {
      await withHost(async lab => {
        const pod = await connect(lab);
        const [ingressRate, egressRate] = [40 * MBIT, 24 * MBIT];
        const burst = { ingressBurst: MBIT, egressBurst: MBIT };
        await succeed(lab, callOf('ADD', pod, { ingressRate, egressRate, ...burst }));
        const [host, inside] = [lab.host, pod.container];
        const address = pod[family];
        for (const [transfer, rate] of [
          [{ from: host, to: inside, address }, ingressRate],
          [{ from: inside, to: host, address, connect: 'receiver' as const }, egressRate],
        ] as const) {
          const measured = await steadily(
            () => measureRate(lab, transfer),
            value => within15Percent(value, rate),
          );
          expect(measured * 8).toBeGreaterThan(rate * 0.85);
          expect(measured * 8).toBeLessThan(rate * 1.15);
        }
      });
    },
    deadline(60_000),
  );
});
