// Is an isolated pod out of its neighbours' reach by every address that it has, and in reach of its gateway?

import { describe, expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { type Lab, useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import {
  add,
  check,
  del,
  elementsOf,
  FAMILIES,
  gc,
  nft,
  type Pod,
  prevResultOf,
  reaches,
  twoBridges,
} from '../helpers/two-bridges.ts';

const ISOLATED = { conf: { ingressPolicy: 'isolated' } };
const LINK_LOCAL = { a: 'fe80::a', b: 'fe80::b', gateway: 'fe80::1' } as const;
const DEADLINE_MS = deadline(60_000);

describeRoot(
  'firewall, isolated',
  () => {
    const createLab = useLabs();

    describe.each(['1', '0'])('where bridge-nf-call-iptables is %s', filtered => {
      test(
        'neighbours reach no address of the pod, whether its result tells it or not',
        async () => {
          const { lab, a, b } = await sceneWith(filtered);
          const addresses = [
            a.v4,
            a.v6,
            `${LINK_LOCAL.a}%eth0`,
            await giveBoth(lab, a, b, '169.254.7.2/16', '169.254.7.3/16'),
            await giveBoth(lab, a, b, '192.0.2.2/24', '192.0.2.3/24'),
            await giveBoth(lab, a, b, 'fd00:77::2/64', 'fd00:77::3/64'),
          ];
          for (const address of addresses)
            expect([address, await ping(lab, b, address)]).toEqual([address, true]);
          expect(await add(lab, a, ISOLATED)).toMatchObject({ exitCode: 0 });
          const reached = await Promise.all(addresses.map(address => reaches(lab, b, address)));
          expect(reached).toEqual(addresses.map(() => false));
          await del(lab, a);
          for (const address of addresses)
            expect([address, await ping(lab, b, address)]).toEqual([address, true]);
        },
        DEADLINE_MS,
      );

      test('a neighbour that needs no ARP does not reach the pod, nor does multicast', async () => {
        const { lab, a, b } = await sceneWith(filtered);
        const mac = await macOf(lab, a);
        await giveBoth(lab, a, b, '192.0.2.2/24', '192.0.2.3/24');
        await lab.ip(b, 'neigh', 'replace', '192.0.2.2', 'lladdr', mac, 'dev', 'eth0', 'nud', 'permanent');
        const other = await macOf(lab, b);
        await lab.ip(a, 'neigh', 'replace', '192.0.2.3', 'lladdr', other, 'dev', 'eth0', 'nud', 'permanent');
        await countMulticast(lab, a);
        const send = () => reaches(lab, b, 'ff02::1%eth0');
        await send();
        const before = await multicastSeen(lab, a);
        expect(before).toBeGreaterThan(0);
        expect(await ping(lab, b, '192.0.2.2')).toBe(true);
        await add(lab, a, ISOLATED);
        expect(await reaches(lab, b, '192.0.2.2')).toBe(false);
        const then = await multicastSeen(lab, a);
        await send();
        expect(await multicastSeen(lab, a)).toBe(then);
      });

      test('an isolated pod and its gateway and the outside reach each other, with empty neighbour tables', async () => {
        const { lab, outside, a } = await sceneWith(filtered);
        await add(lab, a, ISOLATED);
        // Without a link-local address there, the host sends neighbour solicitations for its own traffic only.
        expect(await ping(lab, lab.host, outside.address.v6)).toBe(true);
        await forgetNeighbours(lab, a);
        for (const address of [
          '10.9.1.1',
          'fd00:9:1::1',
          `${LINK_LOCAL.gateway}%eth0`,
          outside.address.v4,
          outside.address.v6,
        ])
          expect([address, await ping(lab, a, address)]).toEqual([address, true]);
        await forgetNeighbours(lab, a);
        expect(await ping(lab, lab.host, `${LINK_LOCAL.a}%br1`)).toBe(true);
        for (const family of ['v4', 'v6'] as const) {
          expect(await ping(lab, outside, a[family])).toBe(true);
          expect(await ping(lab, lab.host, a[family])).toBe(true);
        }
      });
    });

    test('CHECK reports a missing port, ADD restores it, DEL and GC remove it', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      for (const pod of [a, b]) await add(lab, pod, ISOLATED);
      expect(await portsOf(lab)).toEqual(['br1pod2', 'br1pod3']);
      await nft(lab, 'delete element bridge catena_firewall ports { br1pod2 }');
      expect((await check(lab, a, ISOLATED)).error?.msg).toContain('{ br1pod2 } of "ports" is missing');
      expect((await check(lab, b, ISOLATED)).exitCode).toBe(0);
      expect((await add(lab, a, ISOLATED)).exitCode).toBe(0);
      expect(await check(lab, a, ISOLATED)).toMatchObject({ exitCode: 0, stderr: '' });
      expect((await del(lab, a)).exitCode).toBe(0);
      expect(await portsOf(lab)).toEqual(['br1pod3']);
      expect((await gc(lab, [])).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual({});
    });

    test('another policy opens the port again', async () => {
      const { lab, a, b } = await sceneWith('0');
      await add(lab, a, ISOLATED);
      expect((await add(lab, a, { conf: { ingressPolicy: 'same-bridge' } })).exitCode).toBe(0);
      expect(await portsOf(lab)).toEqual([]);
      expect(await ping(lab, b, `${LINK_LOCAL.a}%eth0`)).toBe(true);
    });

    test('a bridge without a port of the pod is refused before anything is changed', async () => {
      const { lab, a } = await twoBridges(createLab);
      await lab.ip(lab.host, 'link', 'set', 'br1pod2', 'nomaster');
      const { error } = await add(lab, a, ISOLATED);
      expect(error).toMatchObject({ code: 7 });
      expect(error?.msg).toBe('Cannot isolate "eth0": bridge "br1" has no port that leads to it');
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
    });

    test('a policy holds between VLANs of one bridge, by the device that the host routes by', async () => {
      const { lab, a, b, c } = await twoBridges(createLab);
      await lab.ip(lab.host, 'link', 'add', 'trunk', 'type', 'bridge');
      const [conf, other] = [{ ingressPolicy: 'same-bridge' }, 'othernet'];
      const added = async (pod: Pod, network?: string) => {
        const call = { conf, prevResult: behindVlan(pod), ...(network ? { network } : {}) };
        expect((await add(lab, pod, call)).exitCode).toBe(0);
        expect(await check(lab, pod, call)).toMatchObject({ exitCode: 0, stdout: '' });
      };
      await added(a);
      await added(c, other);
      for (const family of FAMILIES) {
        expect(await reaches(lab, c, a[family])).toBe(false);
        expect(await reaches(lab, a, c[family])).toBe(false);
        expect(await ping(lab, b, a[family])).toBe(true);
      }
      for (const [pod, network] of [[a], [c, other]] as const)
        expect((await del(lab, pod, network ? { network } : {})).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual({});
    });

    test('a device with the name of a dead pod’s port belongs to its new pod', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      await add(lab, a, ISOLATED);
      await lab.ip(lab.host, 'link', 'delete', 'br1pod2');
      await lab.ip(lab.host, 'link', 'set', 'br1pod3', 'down');
      await lab.ip(lab.host, 'link', 'set', 'br1pod3', 'name', 'br1pod2', 'up');
      expect((await add(lab, b, ISOLATED)).exitCode).toBe(0);
      expect((await del(lab, a)).exitCode).toBe(0);
      expect(await portsOf(lab)).toEqual(['br1pod2']);
      expect(await check(lab, b, ISOLATED)).toMatchObject({ exitCode: 0, stderr: '' });
    });

    async function sceneWith(filtered: string) {
      const scene = await twoBridges(createLab);
      await giveLinkLocals(scene.lab, scene.a, scene.b);
      const keys = ['iptables', 'ip6tables'].map(key => `net.bridge.bridge-nf-call-${key}=${filtered}`);
      await scene.lab.run(scene.lab.host, ['sysctl', '-w', ...keys]);
      return scene;
    }
  },
  requires('nft', 'ping'),
);

/** As the bridge plugin reports a VLAN: the bridge first, and last its port that has the gateway's address. */
function behindVlan(pod: Pod): object {
  const { interfaces, ...result } = prevResultOf(pod) as { interfaces: object[] };
  return { ...result, interfaces: [{ name: 'trunk' }, ...interfaces.slice(1), { name: pod.bridge }] };
}

/** Names of the ports in the set, each of which the map of attachments has as well. */
async function portsOf(lab: Lab): Promise<string[]> {
  const { ports = [], behind = [] } = await elementsOf(lab);
  const names = ports.map(({ elem }) => elem.val).sort();
  expect(behind.map(row => row[1]).sort()).toEqual(names);
  return names;
}

/** Labs assign no link-local addresses; pods of real hosts have them. */
async function giveLinkLocals(lab: Lab, a: Pod, b: Pod): Promise<void> {
  for (const [ns, device, address] of [
    [a, 'eth0', LINK_LOCAL.a],
    [b, 'eth0', LINK_LOCAL.b],
    [lab.host, 'br1', LINK_LOCAL.gateway],
  ] as const)
    await lab.ip(ns, 'addr', 'add', `${address}/64`, 'dev', device, 'nodad');
}

async function forgetNeighbours(lab: Lab, a: Pod): Promise<void> {
  await lab.ip(a, 'neigh', 'flush', 'dev', 'eth0');
  await lab.ip(lab.host, 'neigh', 'flush', 'dev', 'br1');
}

async function macOf(lab: Lab, pod: Pod): Promise<string> {
  const { stdout } = await lab.run(pod, ['ip', '-j', 'link', 'show', 'dev', 'eth0']);
  return JSON.parse(stdout)[0].address;
}

/** @returns the first one's address */
async function giveBoth(lab: Lab, a: Pod, b: Pod, first: string, second: string): Promise<string> {
  const nodad = first.includes(':') ? ['nodad'] : [];
  await lab.ip(a, 'addr', 'add', first, 'dev', 'eth0', ...nodad);
  await lab.ip(b, 'addr', 'add', second, 'dev', 'eth0', ...nodad);
  return first.split('/')[0] ?? '';
}

async function countMulticast(lab: Lab, pod: Pod): Promise<void> {
  const rules = `table inet seen { chain input { type filter hook input priority 0;
    ip6 daddr ff02::1 icmpv6 type echo-request ip6 saddr != ${LINK_LOCAL.gateway} counter
  }
}\n`;
  expect(await lab.run(pod, ['nft', '-f', '-'], { stdin: rules })).toMatchObject({ exitCode: 0, stderr: '' });
}

async function multicastSeen(lab: Lab, pod: Pod): Promise<number> {
  const rows = await lab.nft(pod, 'list', 'table', 'inet', 'seen');
  const counter = rows.flatMap(({ rule }) => rule?.expr ?? []).find(one => one.counter);
  return counter.counter.packets;
}
