// Does an ADD of ptp, host-device, tap or loopback that fails half way leave everything as it was, wherever the kernel says no, and does an ADD
// or a DEL that fails free no address that is in use?
// Those of portmap, bandwidth and tuning: testing.test.ts, on one host each
import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { connect } from '../helpers/connected-pod.ts';
import { deadline } from '../helpers/deadline.ts';
import type { Dump } from '../helpers/dump.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, type Lab, type Row, untilUp, withHost } from '../helpers/netns.ts';
import { describeInOrder, requires } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const DEADLINE_MS = deadline(120_000);
/** ADD of host-device makes twice as many requests. */
const LONG_DEADLINE_MS = deadline(240_000);

/** Fixed skeletons may outlive an attachment; the tables "nat" are iptables' own. */
const KEPT = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap', 'ip nat', 'ip6 nat'] };

/** One plugin; `connected`: the container has an interface already; `prepare` makes what the host has. */
interface Scene {
  readonly plugin: string;
  readonly connected?: boolean;
  prepare?(lab: Lab, container: Container): Promise<void>;
  conf(lab: Lab): Row;
}

function ptp(more: Row = {}): Scene {
  return {
    plugin: 'ptp',
    conf: lab => ({
      ipMasq: true,
      ipam: {
        type: 'host-local',
        ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]],
        routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '10.99.0.0/16' }],
        dataDir: `${lab.tmp}/leases`,
      },
      ...more,
    }),
  };
}

function tap(more: Row = {}): Scene {
  return {
    ...ptp({ owner: 1, group: 2, multiQueue: true, mtu: 1400, mac: '02:00:00:00:67:01', ...more }),
    plugin: 'tap',
    async prepare(lab, container) {
      // An address of its own, and a port: otherwise it takes both from the tap, and loses them with it.
      await lab.ip(container, 'link', 'add', 'br0', 'address', '02:00:00:00:67:02', 'type', 'bridge');
      await lab.ip(container, 'link', 'add', 'port0', 'master', 'br0', 'type', 'veth', 'peer', 'port1');
    },
  };
}

/** A device with all that it loses when it is moved. */
function hostDevice(more: Row = {}): Scene {
  return {
    ...ptp({ device: 'up0', ...more }),
    plugin: 'host-device',
    async prepare(lab, container) {
      for (const ns of [lab.host, container]) {
        // Otherwise each ADD waits for duplicate addresses, and the kernel's own address appears at some moment.
        await lab.sysctl(ns, 'net/ipv6/conf/default/addr_gen_mode', 1);
        await lab.sysctl(ns, 'net/ipv6/conf/default/dad_transmits', 0);
      }
      const ip = (...args: string[]) => lab.ip(lab.host, ...args);
      await ip('link', 'add', 'up0', 'type', 'veth', 'peer', 'far0');
      await ip('link', 'set', 'up0', 'mtu', '1400', 'txqueuelen', '500', 'alias', 'rack 7');
      await ip('addr', 'add', '192.0.2.7/24', 'dev', 'up0');
      await ip('link', 'set', 'far0', 'up');
      await ip('link', 'set', 'up0', 'up');
      await ip('route', 'add', '198.51.100.0/24', 'via', '192.0.2.1');
      await ip('route', 'add', '203.0.113.0/24', 'via', '192.0.2.1', 'table', '100');
      await ip('rule', 'add', 'from', '192.0.2.7', 'lookup', '100', 'priority', '500');
      // The state of an end follows that of its peer a moment later.
      for (const end of ['up0', 'far0']) await untilUp(lab.host, end);
    },
  };
}

async function stateOf(lab: Lab, container: Container): Promise<unknown> {
  const leases = await lab.run(lab.host, ['find', `${lab.tmp}/leases`, '-name', '[0-9f]*']);
  const records = await lab.run(lab.host, ['find', `${lab.tmp}/run/host-device`, '-name', '*.json']);
  const { stdout: ruleset } = await lab.run(lab.host, ['nft', 'list', 'ruleset']);
  const sysctl = (key: string) => lab.sysctl(lab.host, key);
  return {
    host: withoutOrigins(await lab.dump(lab.host, KEPT)),
    container: await lab.dump(container, KEPT),
    traces: ruleset
      .split('\n')
      .filter(line => line.includes(container.id) || /CNI-(DN|SN)-|CNI-\w{24}/.test(line)),
    leases: leases.stdout,
    records: records.stdout,
    forwarding: [await sysctl('net/ipv4/ip_forward'), await sysctl('net/ipv6/conf/all/forwarding')],
  };
}

/** Forwarding for a moment changes how the kernel queues; limits come with the first device of a kind. */
function withoutOrigins({ qdiscs: _, ...dump }: Dump): unknown {
  const kept = (key: string) => key !== 'qdisc' && !key.startsWith('tso_max');
  return JSON.parse(JSON.stringify(dump, (key, value) => (kept(key) ? value : undefined)));
}

/** Fails each request of ADD. @returns the requests that failed, human-readable */
async function failEach(scene: Scene): Promise<string> {
  return (await failInTurn(request => withHost(lab => failOnce(lab, scene, request)))).join('\n');
}

async function failOnce(
  lab: Lab,
  { plugin, connected, prepare, conf }: Scene,
  request: number,
): Promise<string | undefined> {
  const pod = connected ? await connect(lab) : undefined;
  const container = pod?.container ?? (await lab.container());
  await prepare?.(lab, container);
  // The first time that it comes up the kernel gives it an address, which stays.
  for (const state of ['up', 'down']) await lab.ip(container, 'link', 'set', 'lo', state);
  const before = await stateOf(lab, container);
  const reply = await lab.plugin(plugin, {
    command: 'ADD',
    conf: { cniVersion: '1.0.0', name: 'podnet', type: plugin, ...conf(lab) },
    container,
    ifname: plugin === 'loopback' ? 'lo' : 'eth0',
    env: { CATENA_FAULT: `kernel:${request}` },
    ...(pod ? { prevResult: pod.prevResult } : {}),
  });
  const what = faultIn(reply.stderr)?.what;
  // Some are best effort, such as a sysctl that not every kernel has.
  if (reply.exitCode === 0) return what;
  expect(reply.error?.details ?? '').not.toContain('could not be undone');
  let state: unknown;
  const isAsBefore = async () => {
    state = await stateOf(lab, container);
    return Bun.deepEquals(state, before);
  };
  await until(isAsBefore, { withinMs: 1_000 }).catch(() => {});
  expect({ what, state }).toEqual({ what, state: before });
  return what;
}

describeInOrder('ADD that fails at the nth request leaves nothing', () => {
  test(
    'of ptp',
    async () => {
      const failed = await failEach(ptp());
      for (const words of ['of kind veth', 'add address fd88::2', 'add route to 10.99.0.0/16', 'forwarding'])
        expect(failed).toContain(words);
    },
    DEADLINE_MS,
  );

  test(
    'of host-device',
    async () => {
      const failed = await failEach(hostDevice({ useInterfaceNetwork: true }));
      for (const words of ['alias up0', 'netnsFd', 'add address fd88::2', 'add route to 10.99.0.0/16'])
        expect(failed).toContain(words);
    },
    LONG_DEADLINE_MS,
  );

  test(
    'of tap',
    async () => {
      const failed = await failEach(tap({ bridge: 'br0' }));
      for (const words of [
        '/dev/net/tun',
        'create tap',
        'set group 2',
        'keep tap',
        'master',
        'add address fd88::2',
      ])
        expect(failed).toContain(words);
    },
    DEADLINE_MS,
  );

  test('of loopback', async () => {
    expect(await failEach({ plugin: 'loopback', conf: () => ({}) })).toContain('up true');
  });
});

/** Fails each request of DEL, which is then called again. @returns the requests that failed, human-readable */
async function failEachOfDel({ plugin, prepare, conf }: Scene): Promise<string> {
  return withHost(async lab => {
    const container = await lab.container();
    await prepare?.(lab, container);
    const call = { conf: { cniVersion: '1.0.0', name: 'podnet', type: plugin, ...conf(lab) }, container };
    const leases = async () =>
      (await lab.run(lab.host, ['find', `${lab.tmp}/leases`, '-name', '[0-9f]*'])).stdout;
    const failed = await failInTurn(async request => {
      const { result: prevResult } = await lab.plugin(plugin, { command: 'ADD', ...call });
      const leased = await leases();
      const env = { CATENA_FAULT: `kernel:${request}` };
      const reply = await lab.plugin(plugin, { command: 'DEL', ...call, prevResult, env });
      const what = faultIn(reply.stderr)?.what;
      const links = await lab.ip(container, 'addr', 'show');
      const addresses = links.flatMap(({ addr_info }) => addr_info.map((one: Row) => one.local));
      if (addresses.some(one => String(one).startsWith('10.88.0.')))
        expect({ what, leases: await leases() }).toEqual({ what, leases: leased });
      expect(await lab.plugin(plugin, { command: 'DEL', ...call, prevResult })).toMatchObject({
        exitCode: 0,
      });
      expect({ what, leases: await leases() }).toEqual({ what, leases: '' });
      return what;
    });
    return failed.join('\n');
  });
}

describeInOrder('ADD that fails and cannot delete its interface', () => {
  test(
    'keeps the address for DEL',
    async () => {
      await withHost(async lab => {
        const container = await lab.container();
        // The plugin refuses such an address when it has made the interface.
        const ipam = { type: 'host-local', subnet: '127.5.0.0/24', dataDir: `${lab.tmp}/leases` };
        const call = { conf: { cniVersion: '1.0.0', name: 'podnet', type: 'bridge', ipam }, container };
        const leases = async () =>
          (await lab.run(lab.host, ['find', `${lab.tmp}/leases`, '-name', '127.*', '-printf', '%f '])).stdout;
        const isThere = async () =>
          (await lab.ip(container, 'link', 'show')).some(one => one.ifname === 'eth0');
        const failed = await failInTurn(async request => {
          const env = { CATENA_FAULT: `kernel:${request}` };
          const reply = await lab.plugin('bridge', { command: 'ADD', ...call, env });
          const what = faultIn(reply.stderr)?.what;
          expect(reply).toMatchObject({ exitCode: 1 });
          if (await isThere()) expect({ what, leases: await leases() }).not.toEqual({ what, leases: '' });
          expect(await lab.plugin('bridge', { command: 'DEL', ...call })).toMatchObject({ exitCode: 0 });
          expect({ what, leases: await leases(), isThere: await isThere() }).toEqual({
            what,
            leases: '',
            isThere: false,
          });
          return what;
        });
        expect(failed.join('\n')).toContain('delete link');
      });
    },
    DEADLINE_MS,
  );
});

describeInOrder('DEL that fails at the nth request frees no address that an interface has', () => {
  test.each([
    ['bridge', { ...ptp({ bridge: 'br0', isGateway: true }), plugin: 'bridge' }, 'delete link'],
    ['ptp', ptp(), 'delete link'],
    ['tap', tap(), 'list links'],
    ['host-device', hostDevice(), 'netnsFd'],
  ] as const)(
    'of %s',
    async (_, scene, words) => {
      expect(await failEachOfDel(scene)).toContain(words);
    },
    DEADLINE_MS,
  );
});

describeInOrder(
  'ADD with iptables that fails at the nth request leaves nothing',
  () => {
    test(
      'of ptp',
      async () => {
        expect(await failEach(ptp({ ipMasqBackend: 'iptables' }))).toContain('ip6tables-restore');
      },
      DEADLINE_MS,
    );
  },
  requires('iptables-restore', 'ip6tables-restore'),
);
