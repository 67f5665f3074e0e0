// Does an ADD of the bridge plugin that fails half way leave everything as it was, wherever the kernel says no?
import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { deadline } from '../helpers/deadline.ts';
import type { Dump } from '../helpers/dump.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { describeInOrder, requires, requiresVlanFiltering } from '../helpers/skip.ts';

const DEADLINE_MS = deadline(120_000);

/** Fixed skeletons may outlive an attachment; the tables "nat" are iptables' own. */
const KEPT = {
  ignoreTables: ['inet catena_masquerade', 'bridge catena_macspoof', 'ip nat', 'ip6 nat'],
};

const LAYER2 = { cniVersion: '1.1.0', name: 'podnet', type: 'bridge', bridge: 'br0' };

function layer3(lab: Lab, more: object = {}): object {
  const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];
  const ipam = {
    type: 'host-local',
    ranges,
    dataDir: `${lab.tmp}/leases`,
    routes: [{ dst: '10.99.0.0/16' }],
  };
  return { ...LAYER2, isDefaultGateway: true, ipMasq: true, ipam, ...more };
}

async function stateOf(lab: Lab, container: Container): Promise<unknown> {
  const leases = await lab.run(lab.host, ['find', `${lab.tmp}/leases`, '-name', '[0-9f]*']);
  const sysctl = (key: string) => lab.sysctl(lab.host, key);
  const nat = async (family: string) =>
    (await lab.run(lab.host, ['nft', 'list', 'table', family, 'nat'])).stdout;
  return {
    host: withoutOrigins(await lab.dump(lab.host, KEPT)),
    container: await lab.dump(container, KEPT),
    elements: JSON.stringify(await lab.nft(lab.host, 'list', 'sets')).includes(container.id),
    chains: [...(await nat('ip')).matchAll(/CNI-\w+/g), ...(await nat('ip6')).matchAll(/CNI-\w+/g)],
    leases: leases.stdout,
    forwarding: [await sysctl('net/ipv4/ip_forward'), await sysctl('net/ipv6/conf/all/forwarding')],
  };
}

/** The kernel gives a bridge its qdisc and the limits of its ports with the first port, and takes them with none. */
function withoutOrigins({ qdiscs: _, ...dump }: Dump): unknown {
  const kept = (key: string) => key !== 'qdisc' && !key.startsWith('tso_max');
  return JSON.parse(JSON.stringify(dump, (key, value) => (kept(key) ? value : undefined)));
}

/** What a test begins with: the configuration, and commands that prepare the host. */
interface Scene {
  conf(lab: Lab): object;
  readonly host?: readonly string[];
}

/** Fails each request of ADD. @returns descriptions of the requests that failed */
function failEach(scene: Scene): Promise<string[]> {
  return failInTurn(request => withHost(lab => failOnce(lab, scene, request)));
}

async function failOnce(lab: Lab, scene: Scene, request: number): Promise<string | undefined> {
  const container = await lab.container();
  for (const line of scene.host ?? []) await lab.run(lab.host, line.split(' '));
  const before = await stateOf(lab, container);
  const env = { CATENA_FAULT: `kernel:${request}` };
  const reply = await lab.plugin('bridge', { command: 'ADD', conf: scene.conf(lab), container, env });
  const what = faultIn(reply.stderr)?.what;
  // Some are best effort, such as a sysctl that not every kernel has.
  if (reply.exitCode === 0) return what;
  expect(reply.error?.details ?? '').not.toContain('could not be undone');
  expect({ what, state: await stateOf(lab, container) }).toEqual({ what, state: before });
  return what;
}

describeInOrder('bridge ADD that fails at the nth request', () => {
  test(
    '[1.1.0] leaves nothing on a fresh host',
    async () => {
      const options = { macspoofchk: true, hairpinMode: true, portIsolation: true, mtu: 1400 };
      const failed = (await failEach({ conf: lab => layer3(lab, options) })).join('\n');
      expect(failed).toContain('create link "br0"');
      expect(failed).toContain('of kind veth');
      expect(failed).toContain('add address fd88::2/64');
      expect(failed).toContain('add route to 10.99.0.0/16');
      expect(failed).toContain('net/ipv6/conf/all/forwarding');
    },
    DEADLINE_MS,
  );

  test(
    '[1.1.0] restores flags and addresses of an adopted bridge',
    async () => {
      const failed = await failEach({
        conf: lab => layer3(lab, { forceAddress: true, promiscMode: true }),
        // The gateway is to take the place of this address, and the bridge is down.
        host: ['ip link add br0 address 02:00:00:00:00:77 type bridge', 'ip addr add 10.88.0.200/24 dev br0'],
      });
      expect(failed.join('\n')).toContain('up true, promisc true');
      expect(failed.join('\n')).toContain('delete address 10.88.0.200/24');
    },
    DEADLINE_MS,
  );
});

describeInOrder(
  'bridge ADD with iptables that fails at the nth request',
  () => {
    test(
      '[1.1.0] leaves no chain and no rule',
      async () => {
        const failed = await failEach({ conf: lab => layer3(lab, { ipMasqBackend: 'iptables' }) });
        expect(failed.join('\n')).toContain('ip6tables-restore');
      },
      DEADLINE_MS,
    );
  },
  requires('iptables-restore', 'ip6tables-restore'),
);

describeInOrder(
  'bridge ADD with VLANs that fails at the nth request',
  () => {
    const conf = (lab: Lab) => layer3(lab, { vlan: 100, vlanTrunk: [{ minID: 200, maxID: 210 }] });

    test(
      '[1.1.0] leaves neither bridge nor gateway port',
      async () => {
        const failed = (await failEach({ conf })).join('\n');
        expect(failed).toContain('add VLANs 100, 200-210');
        expect(failed).toContain('remove VLANs 1-4094');
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] leaves a foreign bridge unchanged',
      async () => {
        const host = ['ip link add br0 address 02:00:00:00:00:77 type bridge vlan_filtering 1'];
        expect((await failEach({ conf, host })).join('\n')).toContain('add address 10.88.0.1/24');
      },
      DEADLINE_MS,
    );
  },
  requiresVlanFiltering(),
);

describeInOrder('bridge ADD on a bridge with 1023 ports', () => {
  test(
    'says that there are as many as the kernel allows, leaves nothing, and succeeds after DEL of another',
    async () => {
      await withHost(async lab => {
        const [first, second, conf] = [await lab.container(), await lab.container(), layer3(lab)];
        const call = (command: string, container: Container) =>
          lab.plugin('bridge', { command, conf, container });
        expect(await call('ADD', first)).toMatchObject({ exitCode: 0 });
        // Both ends of a pair are ports: half as many devices.
        const pairs = Array.from({ length: 511 }, (_, i) => [
          `link add a${i} master br0 type veth peer name b${i}`,
          `link set b${i} master br0`,
        ]);
        await lab.batch(lab.host, ...pairs.flat());
        const before = await stateOf(lab, second);
        const msg = expect.stringMatching(/^Cannot connect .*"br0": it has 1023 ports/);
        expect(await call('ADD', second)).toMatchObject({ error: { code: 11, msg } });
        expect(await stateOf(lab, second)).toEqual(before);
        expect(await call('DEL', first)).toMatchObject({ exitCode: 0 });
        expect(await call('ADD', second)).toMatchObject({ exitCode: 0 });
      });
    },
    DEADLINE_MS,
  );
});
