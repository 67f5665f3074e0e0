// Do pods keep their way out when Docker, ufw or an operator lets iptables drop after they came?

import { describe, expect, test } from 'bun:test';
import { symlinkSync } from 'node:fs';
import { haveOthersForget } from '../../plugins/firewall/kernel/others.ts';
import { TALLY } from '../../plugins/firewall/plan.ts';
import { filterOwnerOf } from '../../src/attach/owner.ts';
import { addElements, deleteElements } from '../../src/netlink/nft/element.ts';
import { commit } from '../../src/netlink/nft/message.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../../src/netlink/socket.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Lab, useLabs } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import {
  add,
  check,
  confOf,
  del,
  elementsOf,
  FAMILIES,
  gc,
  nft,
  type Pod,
  prevResultOf,
  reaches,
  rulesOf,
  type Scene,
  twoBridges,
} from '../helpers/two-bridges.ts';

const DEADLINE_MS = deadline(60_000);
const TOOLS = ['iptables', 'ip6tables'] as const;

/** What each of them does to the chain FORWARD when it starts. */
const LATECOMERS: Record<string, readonly string[]> = {
  'an operator': ['*filter', ':FORWARD DROP [0:0]', 'COMMIT'],
  Docker: [
    ...['*filter', ':FORWARD DROP [0:0]', ':DOCKER - [0:0]', ':DOCKER-USER - [0:0]'],
    ...[':DOCKER-ISOLATION-STAGE-1 - [0:0]', ':DOCKER-ISOLATION-STAGE-2 - [0:0]'],
    '-I FORWARD -o docker0 -j DOCKER',
    '-I FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
    '-I FORWARD -i docker0 ! -o docker0 -j ACCEPT',
    '-I FORWARD -j DOCKER-ISOLATION-STAGE-1',
    '-I FORWARD -j DOCKER-USER',
    '-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2',
    '-A DOCKER-ISOLATION-STAGE-1 -j RETURN',
    '-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP',
    '-A DOCKER-ISOLATION-STAGE-2 -j RETURN',
    '-A DOCKER-USER -j RETURN',
    'COMMIT',
  ],
  ufw: [
    ...['*filter', ':FORWARD DROP [0:0]', ':ufw-before-forward - [0:0]', ':ufw-after-forward - [0:0]'],
    ...[':ufw-reject-forward - [0:0]', ':ufw-track-forward - [0:0]'],
    '-A FORWARD -j ufw-before-forward',
    '-A FORWARD -j ufw-after-forward',
    '-A FORWARD -j ufw-reject-forward',
    '-A FORWARD -j ufw-track-forward',
    '-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
    '-A ufw-reject-forward -j REJECT',
    'COMMIT',
  ],
};

describeRoot(
  'firewall, with iptables that drops later',
  () => {
    const createLab = useLabs();

    describe.each(Object.keys(LATECOMERS))('set by %s', name => {
      test(
        'existing pods keep their traffic without any action',
        async () => {
          const { lab, outside, a } = await reachableScene();
          expect(await add(lab, a)).toMatchObject({ exitCode: 0, stderr: '' });
          await comeLater(lab, name);
          for (const family of FAMILIES) {
            expect(await ping(lab, a, outside.address[family])).toBe(true);
            // From outside, a pod is reached by answers only, as with the reference.
            expect(await reaches(lab, outside, a[family])).toBe(false);
          }
          expect(await check(lab, a)).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
          expect((await del(lab, a)).exitCode).toBe(0);
          for (const family of FAMILIES) expect(await reaches(lab, a, outside.address[family])).toBe(false);
          expect((await rulesOf(lab)).join('\n')).not.toContain(a.v4);
        },
        DEADLINE_MS,
      );
    });

    test('iptables treats the table as its own: it lists, saves, restores and changes it without errors', async () => {
      const { lab, outside, a, b } = await reachableScene();
      for (const pod of [a, b]) await add(lab, pod);
      for (const tool of TOOLS) {
        for (const argv of [
          [tool, '-S'],
          [tool, '-nvL'],
          [`${tool}-save`, '-t', 'filter'],
        ]) {
          const { exitCode, stdout, stderr } = await lab.run(lab.host, argv);
          expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
          expect(stdout).toContain('CNI-FORWARD');
          expect(stdout).not.toMatch(/incompatible|unsupported/i);
        }
      }
      const rules = await rulesOf(lab);
      expect(rules).toEqual([
        '-N CNI-ADMIN',
        '-N CNI-FORWARD',
        '-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
        '-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN',
        ...[a, b].flatMap(({ v4 }) => [
          `-A CNI-FORWARD -d ${v4}/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
          `-A CNI-FORWARD -s ${v4}/32 -j ACCEPT`,
          `-A CNI-FORWARD -d ${v4}/32 -m conntrack --ctstate DNAT -j ACCEPT`,
        ]),
      ]);
      const { stdout } = await lab.run(lab.host, ['iptables-save', '-t', 'filter']);
      await lab.run(lab.host, ['iptables', '-F']);
      expect(await lab.run(lab.host, ['iptables-restore'], { stdin: stdout })).toMatchObject({ exitCode: 0 });
      expect(await rulesOf(lab)).toEqual(rules);
      await lab.run(lab.host, ['iptables', '-P', 'FORWARD', 'DROP']);
      expect(await ping(lab, a, outside.address.v4)).toBe(true);
      expect(await check(lab, a)).toMatchObject({ exitCode: 0, stdout: '' });
      expect((await del(lab, a)).exitCode).toBe(0);
      expect((await gc(lab, [])).exitCode).toBe(0);
      expect(await rulesOf(lab)).toEqual(rules.slice(0, 4));
      expect(await elementsOf(lab)).toEqual({});
    });

    test('the operator’s chain is evaluated first in iptables', async () => {
      const { lab, outside, a } = await reachableScene();
      await add(lab, a);
      await lab.run(lab.host, ['iptables', '-A', 'CNI-ADMIN', '-s', a.v4, '-j', 'DROP']);
      expect(await reaches(lab, a, outside.address.v4)).toBe(false);
    });

    test('pods on one bridge keep their own policies', async () => {
      const { lab, a, b } = await reachableScene();
      await add(lab, a, { network: 'one', conf: { ingressPolicy: 'same-bridge' } });
      await add(lab, b, { network: 'two', conf: { ingressPolicy: 'isolated' } });
      await comeLater(lab, 'Docker');
      expect(await reaches(lab, a, b.v4)).toBe(false);
      expect((await rulesOf(lab)).join('\n')).not.toContain('STAGE-1 -i br1');
    });

    test('"backend": "nftables" writes nothing to iptables', async () => {
      const { lab, a } = await reachableScene();
      expect((await add(lab, a, { conf: { backend: 'nftables' } })).exitCode).toBe(0);
      expect(await lab.nft(lab.host, 'list', 'tables')).toMatchObject([
        { table: { name: 'catena_firewall' } },
      ]);
    });

    test('CHECK accepts pods without rules in iptables until that drops; then another ADD adds them', async () => {
      const { lab, outside, a } = await reachableScene();
      await add(lab, a, { conf: { backend: 'nftables' } });
      expect(await check(lab, a)).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
      await comeLater(lab, 'Docker');
      expect((await check(lab, a)).error?.msg).toContain('"iptables4" is missing');
      expect((await add(lab, a)).exitCode).toBe(0);
      expect(await ping(lab, a, outside.address.v4)).toBe(true);
      expect(await check(lab, a)).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
    });

    test('ADD restores flushed rules, and CHECK names one that is missing', async () => {
      const { lab, outside, a } = await reachableScene();
      await add(lab, a);
      await comeLater(lab, 'an operator');
      await lab.run(lab.host, ['iptables', '-F']);
      expect((await check(lab, a)).error?.msg).toContain('the table "filter" lacks "-I CNI-FORWARD 1 ');
      expect((await add(lab, a)).exitCode).toBe(0);
      expect(await ping(lab, a, outside.address.v4)).toBe(true);
      await nft(lab, 'delete table ip filter');
      expect((await add(lab, a)).exitCode).toBe(0);
      expect(await check(lab, a)).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
    });

    test('with iptables-legacy, the rules are in its table', async () => {
      const { lab, outside, a } = await reachableScene();
      const env = { PATH: legacyPath(lab) };
      expect(await add(lab, a, { env })).toMatchObject({ exitCode: 0 });
      for (const tool of TOOLS) await lab.run(lab.host, [`${tool}-legacy`, '-P', 'FORWARD', 'DROP']);
      expect(await lab.nft(lab.host, 'list', 'table', 'inet', 'catena_firewall')).not.toEqual([]);
      expect((await lab.run(lab.host, ['nft', 'list', 'table', 'ip', 'filter'])).exitCode).not.toBe(0);
      for (const family of FAMILIES) expect(await ping(lab, a, outside.address[family])).toBe(true);
      expect(await check(lab, a, { env })).toMatchObject({ exitCode: 0, stdout: '' });
      expect((await del(lab, a, { env })).exitCode).toBe(0);
      expect(await reaches(lab, a, outside.address.v4)).toBe(false);
    });

    test('if both packet filters have a table, both get the rules', async () => {
      const { lab, outside, a } = await reachableScene();
      for (const tool of TOOLS) await lab.run(lab.host, [`${tool}-legacy`, '-S']);
      expect(await add(lab, a)).toMatchObject({ exitCode: 0 });
      for (const tool of TOOLS) {
        await lab.run(lab.host, [tool, '-P', 'FORWARD', 'DROP']);
        await lab.run(lab.host, [`${tool}-legacy`, '-P', 'FORWARD', 'DROP']);
      }
      for (const family of FAMILIES) expect(await ping(lab, a, outside.address[family])).toBe(true);
      expect((await del(lab, a)).exitCode).toBe(0);
      expect((await rulesOf(lab, 'iptables-legacy')).join('\n')).not.toContain(a.v4);
      expect((await rulesOf(lab)).join('\n')).not.toContain(a.v4);
    });

    testNeeding(
      'the reference accepts and removes our rules, and the reverse',
      async () => {
        const { lab, a, b } = await reachableScene();
        const reference = (command: string, pod: Pod) => {
          const conf = confOf({ version: '1.0.0' });
          const prevResult = prevResultOf(pod, '1.0.0');
          const env = { DBUS_SYSTEM_BUS_ADDRESS: 'unix:path=/nonexistent/bus' };
          return lab.plugin('firewall', {
            command,
            container: pod,
            conf,
            prevResult,
            env,
            binDir: REFERENCE_BIN_DIR,
          });
        };
        await add(lab, a);
        expect(await reference('CHECK', a)).toMatchObject({ exitCode: 0, stdout: '' });
        expect((await reference('ADD', b)).exitCode).toBe(0);
        expect(await check(lab, b)).toMatchObject({ exitCode: 0, stdout: '' });
        expect((await reference('DEL', a)).exitCode).toBe(0);
        const late = { command: 'DEL', container: b, conf: confOf({}), prevResult: prevResultOf(b) };
        expect((await lab.plugin('firewall', late)).exitCode).toBe(0);
        // The reference does not know the rule for published ports, which GC removes with the pod's address.
        const left = (await rulesOf(lab)).slice(4);
        expect(left).toEqual([`-A CNI-FORWARD -d ${a.v4}/32 -m conntrack --ctstate DNAT -j ACCEPT`]);
        await lab.ip(lab.host, 'link', 'delete', 'br1');
        expect((await gc(lab, [])).exitCode).toBe(0);
        expect(await rulesOf(lab)).toHaveLength(4);
      },
      requiresReference('firewall'),
    );

    testNeeding(
      'an address of a living pod of the reference is refused, and DEL leaves its rules',
      async () => {
        const { lab, outside, a, b } = await reachableScene();
        const conf = confOf({ version: '1.0.0', conf: { backend: 'iptables' } });
        const prevResult = prevResultOf(a, '1.0.0');
        const binDir = REFERENCE_BIN_DIR;
        await lab.plugin('firewall', { command: 'ADD', container: a, conf, prevResult, binDir });
        await comeLater(lab, 'Docker');
        const rules = await rulesOf(lab);
        const asking = { ...b, v4: a.v4, v6: a.v6 };
        expect((await add(lab, asking, { network: 'other' })).error).toMatchObject({ code: 101 });
        const late = { command: 'DEL', container: asking, conf: confOf({ network: 'other' }) };
        expect((await lab.plugin('firewall', { ...late, prevResult: prevResultOf(asking) })).exitCode).toBe(
          0,
        );
        expect(await rulesOf(lab)).toEqual(rules);
        expect(await ping(lab, a, outside.address.v4)).toBe(true);
      },
      requiresReference('firewall'),
    );

    /** The host knows its neighbour outside: without a link-local address it asks for itself only. */
    async function reachableScene(): Promise<Scene> {
      const scene = await twoBridges(createLab);
      const { lab, outside } = scene;
      for (const family of FAMILIES) expect(await ping(lab, lab.host, outside.address[family])).toBe(true);
      return scene;
    }

    test('rules of an interface stay for a pod that comes while the last one goes', async () => {
      const { lab, a } = await twoBridges(createLab);
      const conf = { backend: 'iptables', ingressPolicy: 'isolated' };
      expect(await add(lab, a, { conf })).toMatchObject({ exitCode: 0 });
      const netns = openNetns(lab.host.path);
      const [going, coming] = inNetns(netns, () =>
        [0, 1].map(() => new NetlinkSocket(NETLINK_NETFILTER)),
      ) as [NetlinkSocket, NetlinkSocket];
      try {
        const transaction = going.transaction.bind(going);
        going.transaction = (...args) => {
          going.transaction = transaction;
          // Two addresses each.
          const counted = { key: ['br1'], data: [4] };
          commit(coming, [...deleteElements(TALLY, [counted.key]), ...addElements(TALLY, [counted])]);
          return transaction(...args);
        };
        await haveOthersForget(going, [
          filterOwnerOf({ network: 'podnet', containerId: a.id, ifname: 'eth0' }),
        ]);
      } finally {
        for (const socket of [going, coming]) socket.close();
        closeNetns(netns);
      }
      const rules = (await rulesOf(lab)).join('\n');
      expect(rules).not.toContain(a.v4);
      expect(rules).toContain('-i br1 -o br1');
    });
  },
  requires('nft', 'iptables', 'iptables-legacy'),
);

async function comeLater(lab: Lab, name: string): Promise<void> {
  const stdin = `${LATECOMERS[name]?.join('\n')}\n`;
  for (const tool of TOOLS) {
    const done = await lab.run(lab.host, [`${tool}-restore`, '--noflush'], { stdin });
    expect(done).toMatchObject({ exitCode: 0, stderr: '' });
  }
}

/** A search path on which iptables means the old packet filter. */
function legacyPath(lab: Lab): string {
  for (const tool of TOOLS) {
    for (const verb of ['save', 'restore'])
      symlinkSync(`/usr/sbin/${tool}-legacy-${verb}`, `${lab.tmp}/${tool}-${verb}`);
  }
  return `${lab.tmp}:${process.env.PATH}`;
}
