// Do packets pass where firewalld rejects what it was not told of, and is it told to forget?
import { expect, test } from 'bun:test';
import { haveOthersForget } from '../../plugins/firewall/kernel/others.ts';
import { SETS } from '../../plugins/firewall/plan.ts';
import { filterOwnerOf, noteOf } from '../../src/attach/owner.ts';
import { parseIp } from '../../src/net/ip.ts';
import { addEntries, deleteElements } from '../../src/netlink/nft/element.ts';
import { commit } from '../../src/netlink/nft/message.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../../src/netlink/socket.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Firewalld, startFirewalld } from '../helpers/firewalld.ts';
import { requiresFirewalld } from '../helpers/firewalld-packages.ts';
import { type Lab, useLabs } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import {
  add,
  type Call,
  check,
  confOf,
  del,
  elementsOf,
  FAMILIES,
  gc,
  type Pod,
  prevResultOf,
  reaches,
  type Scene,
  status,
  twoBridges,
} from '../helpers/two-bridges.ts';

/** firewalld alone takes seconds to start on a busy machine. */
const DEADLINE_MS = deadline(120_000);

interface GuardedScene extends Scene {
  readonly firewalld: Firewalld;
  readonly env: Firewalld['env'];
}

describeRoot(
  'firewall with firewalld',
  () => {
    const createLab = useLabs();

    test.each(['nftables', 'iptables'] as const)(
      'ADD accepts traffic that firewalld with %s rejects, without being configured to',
      async backend => {
        const { lab, outside, a, firewalld, env } = await guarded(createLab, backend);
        for (const family of FAMILIES) expect(await reaches(lab, a, outside.address[family])).toBe(false);
        for (const conf of [{}, { backend: 'firewalld' }]) {
          expect(await add(lab, a, { conf, env })).toMatchObject({
            exitCode: 0,
            result: prevResultOf(a),
            stderr: '',
          });
          expect(await sourcesOf(firewalld)).toEqual([`${a.v4}/32`, `${a.v6}/128`]);
          expect((await elementsOf(lab)).firewalld4).toHaveLength(1);
          for (const family of FAMILIES) expect(await ping(lab, a, outside.address[family])).toBe(true);
          expect(await check(lab, a, { conf, env })).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
          expect((await del(lab, a, { conf: { backend: 'nftables' }, env })).exitCode).toBe(0);
          expect(await sourcesOf(firewalld)).toEqual([]);
          expect(await elementsOf(lab)).toEqual({});
          expect(await reaches(lab, a, outside.address.v4)).toBe(false);
        }
        expect(await add(lab, a, { conf: { backend: 'nftables' }, env })).toMatchObject({ exitCode: 0 });
        expect(await sourcesOf(firewalld)).toEqual([]);
      },
      DEADLINE_MS,
    );

    test(
      'a second ADD changes nothing, another zone replaces the earlier one, and policies hold',
      async () => {
        const { lab, outside, a, b, firewalld, env } = await guarded(createLab);
        await firewalld.cmd('--permanent', '--new-zone', 'pods');
        await firewalld.cmd('--permanent', '--zone', 'pods', '--set-target', 'ACCEPT');
        await firewalld.cmd('--reload');
        const conf = { ingressPolicy: 'isolated' };
        for (let i = 0; i < 2; i++) expect(await add(lab, a, { conf, env })).toMatchObject({ exitCode: 0 });
        expect(await sourcesOf(firewalld)).toHaveLength(2);
        expect(await ping(lab, a, outside.address.v4)).toBe(true);
        expect(await add(lab, b, { env })).toMatchObject({ exitCode: 0 });
        expect(await reaches(lab, b, a.v4)).toBe(false);
        const zone = { backend: 'firewalld', firewalldZone: 'pods' };
        expect(await add(lab, a, { conf: zone, env })).toMatchObject({ exitCode: 0 });
        expect(await sourcesOf(firewalld, 'pods')).toHaveLength(2);
        expect(await sourcesOf(firewalld)).toEqual([`${b.v4}/32`, `${b.v6}/128`]);
        expect(await check(lab, a, { conf: zone, env })).toMatchObject({ exitCode: 0 });
        expect(await ping(lab, a, outside.address.v6)).toBe(true);
        expect((await gc(lab, [b], env)).exitCode).toBe(0);
        expect(await sourcesOf(firewalld, 'pods')).toEqual([]);
        expect(await sourcesOf(firewalld)).toHaveLength(2);
      },
      DEADLINE_MS,
    );

    test(
      'the source of an address stays that another attachment gets while firewalld is asked',
      async () => {
        const { lab, a, firewalld, env } = await guarded(createLab);
        expect(await add(lab, a, { conf: { backend: 'firewalld' }, env })).toMatchObject({ exitCode: 0 });
        const netns = openNetns(lab.host.path);
        const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
        Object.assign(process.env, env);
        try {
          const owner = { network: 'podnet', containerId: a.id, ifname: 'eth0' };
          const forgotten = haveOthersForget(socket, [filterOwnerOf(owner)]);
          const element = { key: [parseIp(a.v4)], comment: noteOf({ ...owner, containerId: 'later' }) };
          const { firewalld: set } = SETS[4];
          commit(socket, [...deleteElements(set, [element.key]), ...addEntries([{ set, element }])]);
          await forgotten;
        } finally {
          for (const name of Object.keys(env)) delete process.env[name];
          socket.close();
          closeNetns(netns);
        }
        expect(await sourcesOf(firewalld)).toEqual([`${a.v4}/32`]);
      },
      DEADLINE_MS,
    );

    test.each([
      // A reload also empties the tables of iptables, whose rules are checked first.
      ['', 'the table "filter" lacks "-N CNI-FORWARD"'],
      ['firewalld', '/32 of zone "trusted"'],
    ])(
      'CHECK reports what a reload removed, and ADD restores it, with backend "%s"',
      async (backend, missing) => {
        const { lab, a, firewalld, env } = await guarded(createLab);
        const conf = { backend };
        expect(await add(lab, a, { conf, env })).toMatchObject({ exitCode: 0 });
        await firewalld.cmd('--reload');
        const checked = await check(lab, a, { conf, env });
        expect(checked).toMatchObject({ exitCode: 1, error: { code: 999 } });
        expect(checked.error?.msg).toContain(missing);
        expect(await add(lab, a, { conf, env })).toMatchObject({ exitCode: 0 });
        expect(await check(lab, a, { conf, env })).toMatchObject({ exitCode: 0 });
      },
      DEADLINE_MS,
    );

    test(
      'invalid zones are refused before any rule is made, and another zone keeps its address',
      async () => {
        const { lab, a, firewalld, env } = await guarded(createLab);
        const unknown = { backend: 'firewalld', firewalldZone: 'nowhere' };
        const refused = await add(lab, a, { conf: unknown, env });
        expect(refused).toMatchObject({ exitCode: 1, error: { code: 7 } });
        expect(refused.error?.msg).toContain('"nowhere"');
        expect(await elementsOf(lab)).toEqual({});
        expect((await status(lab, unknown, env)).error).toMatchObject({ code: 50 });
        await firewalld.cmd('--zone', 'drop', '--add-source', `${a.v6}/128`);
        const taken = await add(lab, a, { env });
        expect(taken.error?.msg).toContain('it is in zone "drop"');
        expect(await elementsOf(lab)).toEqual({});
        expect(await sourcesOf(firewalld)).toEqual([]);
        expect(await sourcesOf(firewalld, 'drop')).toEqual([`${a.v6}/128`]);
      },
      DEADLINE_MS,
    );

    test(
      'without a running firewalld, ADD fails only if it is configured',
      async () => {
        const { lab, outside, a, firewalld, env } = await guarded(createLab);
        const asked = { conf: { backend: 'firewalld' }, env };
        expect(await add(lab, a, asked)).toMatchObject({ exitCode: 0 });
        await firewalld.stop();
        expect((await check(lab, a, asked)).error?.msg).toContain('is not running');
        expect(await del(lab, a, { env })).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await elementsOf(lab)).toEqual({});
        const refused = await add(lab, a, asked);
        expect(refused.error?.msg).toContain('is not running');
        expect(await elementsOf(lab)).toEqual({});
        expect((await status(lab, { backend: 'firewalld' }, env)).error?.code).toBe(50);
        expect(await add(lab, a, { env })).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await ping(lab, a, outside.address.v4)).toBe(true);
        // Nor without a bus.
        expect((await add(lab, a, { conf: { backend: 'firewalld' } })).error?.msg).toContain(
          'is not running',
        );
      },
      DEADLINE_MS,
    );

    testNeeding(
      'either plugin finds and removes the sources that the other added',
      async () => {
        const { lab, a, firewalld, env } = await guarded(createLab);
        const conf = { backend: 'firewalld' };
        expect(await reference(lab, 'ADD', a, { conf, env })).toMatchObject({ exitCode: 0 });
        expect(await sourcesOf(firewalld)).toEqual([`${a.v4}/32`, `${a.v6}/128`]);
        const call = {
          command: 'DEL',
          container: a,
          conf: confOf({ conf }),
          prevResult: prevResultOf(a),
          env,
        };
        expect(await lab.plugin('firewall', call)).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await sourcesOf(firewalld)).toEqual([]);
        expect(await add(lab, a, { conf, env })).toMatchObject({ exitCode: 0 });
        expect(await reference(lab, 'CHECK', a, { conf, env })).toMatchObject({ exitCode: 0 });
        expect(await reference(lab, 'DEL', a, { conf, env })).toMatchObject({ exitCode: 0 });
        expect(await sourcesOf(firewalld)).toEqual([]);
      },
      requiresReference('firewall'),
    );
  },
  requires('ip', 'nft', 'ping') ?? requiresFirewalld(),
);

/** Pods on two bridges of a host whose firewalld knows none of them. */
async function guarded(
  createLab: () => Promise<Lab>,
  backend: 'nftables' | 'iptables' = 'nftables',
): Promise<GuardedScene> {
  const scene = await twoBridges(createLab);
  const { lab, outside } = scene;
  // Without a link-local address the host finds its neighbour only for itself, and forgets it after half a minute.
  const [uplink] = await lab.ip(outside, 'link', 'show', 'uplink');
  for (const family of FAMILIES) {
    const entry = [outside.address[family], 'lladdr', uplink?.address, 'dev', 'outside0', 'nud', 'permanent'];
    await lab.ip(lab.host, 'neigh', 'replace', ...entry);
  }
  const firewalld = await startFirewalld(scene.lab, backend);
  return { ...scene, firewalld, env: firewalld.env };
}

async function sourcesOf(firewalld: Firewalld, zone = 'trusted'): Promise<string[]> {
  const words = await firewalld.cmd('--zone', zone, '--list-sources');
  return words.split(' ').filter(Boolean).sort();
}

function reference(lab: Lab, command: string, pod: Pod, { conf, env = {} }: Call) {
  const call = { command, container: pod, conf: confOf({ version: '1.0.0', conf: conf ?? {} }), env };
  const prevResult = prevResultOf(pod, '1.0.0');
  return lab.plugin('firewall', { ...call, prevResult, binDir: REFERENCE_BIN_DIR });
}
