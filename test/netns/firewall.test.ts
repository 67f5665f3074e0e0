// Do packets reach the pods they may reach, and no others, and does nothing stay behind?

import { describe, expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { openRawPeer } from '../helpers/datagram.ts';
import { deadline } from '../helpers/deadline.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { startedBy } from '../helpers/script.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { ping } from '../helpers/traffic.ts';
import {
  add,
  addPod,
  type Call,
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
  status,
  twoBridges,
} from '../helpers/two-bridges.ts';
import { until } from '../helpers/until.ts';

/** For tests that do the same over and over. */
const DEADLINE_MS = deadline(120_000);
const TABLES = {
  ignoreTables: ['inet catena_firewall', 'bridge catena_firewall', 'ip filter', 'ip6 filter'],
};

describeRoot(
  'firewall',
  () => {
    const createLab = useLabs();

    test('ADD accepts traffic, CHECK succeeds, DEL removes everything', async () => {
      const version = LATEST_SPEC_VERSION;
      const { lab, a } = await twoBridges(createLab);
      const before = await lab.dump(lab.host, TABLES);
      expect(await add(lab, a, { version })).toMatchObject({
        exitCode: 0,
        stderr: '',
        result: prevResultOf(a, version),
      });
      const owner = `catena:podnet/${a.id}/eth0`;
      expect(await elementsOf(lab)).toMatchObject({ pods4: [elem(owner, a.v4)], pods6: [elem(owner, a.v6)] });
      expect(await check(lab, a, { version })).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
      expect(await del(lab, a, { version })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await elementsOf(lab)).toEqual({});
      expect(await lab.dump(lab.host, TABLES)).toEqual(before);
    });

    test('[0.3.1] the version is refused, as by the reference', async () => {
      const { lab, a } = await twoBridges(createLab);
      expect((await add(lab, a, { version: '0.3.1' })).error?.code).toBe(1);
    });

    describe.each(['1', '0'])('where bridge-nf-call-iptables is %s', filtered => {
      test.each(FAMILIES)('ingressPolicy open: all peers reach each other by IP%s', async family => {
        const { lab, outside, a, b, c } = await twoBridges(createLab);
        await setBridgeFilter(lab, filtered);
        for (const pod of [a, b, c]) expect((await add(lab, pod)).exitCode).toBe(0);
        for (const from of [b, c, outside, lab.host]) expect(await ping(lab, from, a[family])).toBe(true);
        expect(await ping(lab, a, outside.address[family])).toBe(true);
      });

      test.each(FAMILIES)(
        'ingressPolicy same-bridge: pods on different bridges do not reach each other by IP%s',
        async family => {
          const { lab, outside, a, b, c } = await twoBridges(createLab);
          await setBridgeFilter(lab, filtered);
          for (const pod of [a, b, c]) await add(lab, pod, { conf: { ingressPolicy: 'same-bridge' } });
          for (const from of [b, outside, lab.host]) expect(await ping(lab, from, a[family])).toBe(true);
          expect(await ping(lab, a, outside.address[family])).toBe(true);
          const barred = [reaches(lab, c, a[family]), reaches(lab, a, c[family])];
          expect(await Promise.all(barred)).toEqual([false, false]);
          await del(lab, c);
          await add(lab, c);
          // Every peer may reach an open network's pods, and the last closed one opened its bridge again.
          expect(await ping(lab, a, c[family])).toBe(true);
          expect(await ping(lab, c, a[family])).toBe(true);
        },
      );

      test.each(FAMILIES)(
        'ingressPolicy isolated: neighbours do not reach the pod either, by IP%s',
        async family => {
          const { lab, outside, a, b, c } = await twoBridges(createLab);
          await setBridgeFilter(lab, filtered);
          for (const pod of [a, b, c]) await add(lab, pod, { conf: { ingressPolicy: 'isolated' } });
          for (const from of [outside, lab.host]) expect(await ping(lab, from, a[family])).toBe(true);
          expect(await ping(lab, a, outside.address[family])).toBe(true);
          expect(await Promise.all([b, c].map(from => reaches(lab, from, a[family])))).toEqual([
            false,
            false,
          ]);
          for (const pod of [a, b, c]) await del(lab, pod);
          for (const from of [b, c]) expect(await ping(lab, from, a[family])).toBe(true);
        },
      );
    });

    test.each([
      ['left to the plugin', {}],
      ['iptables', { backend: 'iptables' }],
    ])('SCTP is accepted like any other protocol, backend %s', async (_name, conf) => {
      const { lab, outside, a } = await twoBridges(createLab);
      await lab.run(lab.host, ['iptables', '-P', 'FORWARD', 'DROP']);
      expect(await ping(lab, lab.host, outside.address.v4)).toBe(true);
      // Packets of the protocol rather than an association: few kernels of today have one to offer.
      const [inside, beyond] = [openRawPeer(a.path), openRawPeer(outside.path)];
      inside.send(outside.address.v4);
      expect(await beyond.receives(300)).toBe(false);
      expect((await add(lab, a, { conf })).exitCode).toBe(0);
      inside.send(outside.address.v4);
      expect(await beyond.receives()).toBe(true);
      for (const peer of [inside, beyond]) peer.close();
    });

    test('a pod cannot use an unassigned source address to get in', async () => {
      const { lab, a, c } = await twoBridges(createLab);
      for (const pod of [a, c]) await add(lab, pod, { conf: { ingressPolicy: 'same-bridge' } });
      await lab.ip(c, 'addr', 'add', '192.0.2.77/32', 'dev', 'lo');
      await lab.ip(lab.host, 'route', 'add', '192.0.2.77', 'via', c.v4, 'dev', 'br2');
      expect(await reaches(lab, c, a.v4, '-I', '192.0.2.77')).toBe(false);
    });

    test('each pod of one bridge keeps its own policy', async () => {
      const { lab, a, b, c } = await twoBridges(createLab);
      await add(lab, a, { network: 'one', conf: { ingressPolicy: 'same-bridge' } });
      await add(lab, b, { network: 'two', conf: { ingressPolicy: 'isolated' } });
      expect(await reaches(lab, a, b.v4)).toBe(false);
      const third = await addPod(lab, 'br1', 4);
      expect(await ping(lab, third, a.v4)).toBe(true);
      await add(lab, c, { conf: { ingressPolicy: 'same-bridge' } });
      await del(lab, b, { network: 'two' });
      expect(await reaches(lab, c, a.v4)).toBe(false);
    });

    test('the operator’s chain is evaluated first, and kept when our rules are rewritten', async () => {
      const { lab, outside, a, b } = await twoBridges(createLab);
      await add(lab, a);
      await nft(lab, `add rule inet catena_firewall admin ip daddr ${a.v4} drop`);
      expect(await reaches(lab, outside, a.v4)).toBe(false);
      await nft(lab, 'flush chain inet catena_firewall forward');
      expect((await check(lab, a)).error?.msg).toContain('rules of chain "forward" are not ours');
      await add(lab, b);
      expect((await check(lab, a)).exitCode).toBe(0);
      expect(await reaches(lab, outside, a.v4)).toBe(false);
      expect(await ping(lab, outside, b.v4)).toBe(true);
    });

    test('a second ADD changes nothing, and another policy replaces the earlier one', async () => {
      const { lab, a } = await twoBridges(createLab);
      await add(lab, a, { conf: { ingressPolicy: 'isolated' } });
      const once = await elementsOf(lab);
      expect(once).toMatchObject({
        closed: ['br1'],
        tally: [['br1', 2]],
        isolated4: [{}],
        ingress6: [[{}, {}]],
      });
      expect((await add(lab, a, { conf: { ingressPolicy: 'isolated' } })).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual(once);
      expect((await add(lab, a, { conf: { ingressPolicy: 'same-bridge' } })).exitCode).toBe(0);
      expect(Object.keys(await elementsOf(lab))).not.toContain('isolated4');
      expect((await add(lab, a)).exitCode).toBe(0);
      expect(Object.keys(await elementsOf(lab)).sort()).toEqual([
        'claims4',
        'claims6',
        'iptables4',
        'iptables6',
        'pods4',
        'pods6',
      ]);
    });

    test('ADD replaces the elements of the address’s previous owner, whose late DEL changes nothing', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      await add(lab, a, { conf: { ingressPolicy: 'isolated' } });
      await lab.ip(a, 'addr', 'flush', 'dev', 'eth0');
      const prevResult = prevResultOf({ ...b, v4: a.v4, v6: a.v6 });
      expect((await add(lab, b, { prevResult })).exitCode).toBe(0);
      const owners = JSON.stringify(await elementsOf(lab)).match(/catena:[^"]*/g);
      expect([...new Set(owners)]).toEqual([`catena:podnet/${b.id}/eth0`]);
      expect((await del(lab, a)).exitCode).toBe(0);
      expect((await check(lab, b, { prevResult })).exitCode).toBe(0);
    });

    test('many ADDs and DELs at once leave the right count', async () => {
      const { lab, a } = await twoBridges(createLab);
      const pods = Array.from({ length: 8 }, (_, i) => ({
        ...a,
        id: `${a.id}x${i}`,
        v4: `10.9.1.${50 + i}`,
        v6: `fd00:9:1::${50 + i}`,
      }));
      const closed = { conf: { ingressPolicy: 'same-bridge' } };
      const added = await Promise.all(pods.map(pod => add(lab, pod, closed)));
      expect(added.map(({ exitCode, stdout }) => (exitCode ? stdout : ''))).toEqual(Array(8).fill(''));
      expect((await elementsOf(lab)).tally).toEqual([['br1', 16]]);
      await Promise.all(pods.map(pod => del(lab, pod)));
      expect(await elementsOf(lab)).toEqual({});
    });

    test('DEL needs only the name of the attachment, and may be repeated or come without ADD', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      expect((await del(lab, a)).exitCode).toBe(0);
      for (const pod of [a, b]) await add(lab, pod, { conf: { ingressPolicy: 'isolated' } });
      expect((await del(lab, { ...a, path: '' })).exitCode).toBe(0);
      expect((await elementsOf(lab)).pods4).toEqual([elem(`catena:podnet/${b.id}/eth0`, b.v4)]);
      expect((await del(lab, a)).exitCode).toBe(0);
      const bad = { backend: 'nope', ingressPolicy: 'nope' };
      expect((await del(lab, b, { conf: bad })).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual({});
    });

    test('DEL of one network leaves the same container in another alone', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      await add(lab, a, { network: 'one' });
      await add(lab, { ...a, v4: b.v4, v6: b.v6 }, { network: 'two' });
      await del(lab, a, { network: 'one' });
      expect((await elementsOf(lab)).pods4).toEqual([elem(`catena:two/${a.id}/eth0`, b.v4)]);
    });

    test('CHECK names what is missing or was changed, and ADD restores it', async () => {
      const { lab, a } = await twoBridges(createLab);
      const isolated = { conf: { ingressPolicy: 'isolated' } };
      const t = 'inet catena_firewall';
      const cases: [string, string][] = [
        [`delete element ${t} pods4 { ${a.v4} }`, `{ ${a.v4} } of "pods4" is missing`],
        [`delete element ${t} home6 { ${a.v6} . "br1" }`, 'of "home6" is missing'],
        [`delete element ${t} ingress4 { ${a.v4} }`, 'of "ingress4" is missing'],
        [`delete element ${t} closed { "br1" }`, '{ br1 } of "closed" is missing'],
        [`delete element ${t} tally { "br1" }`, '{ br1 } of "tally" is missing'],
        [`delete element bridge catena_firewall isolated4 { ${a.v4} }`, 'of "isolated4" is missing'],
        [`flush chain ${t} isolated`, 'rules of chain "isolated" are not ours'],
        [`insert rule ${t} forward accept`, 'rules of chain "forward" are not ours'],
        ['delete table bridge catena_firewall', 'is missing'],
        [`delete table ${t}`, 'is missing'],
        ['flush ruleset', 'is missing'],
      ];
      for (const [command, words] of cases) {
        expect((await add(lab, a, isolated)).exitCode).toBe(0);
        expect(await check(lab, a, isolated)).toMatchObject({ exitCode: 0 });
        await nft(lab, command);
        const checked = await check(lab, a, isolated);
        expect(checked).toMatchObject({ exitCode: 1, error: { code: 999 } });
        expect(checked.error?.msg).toContain(words);
      }
    });

    test('repair writes a rule again that others have replaced', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      for (const pod of [a, b]) await add(lab, pod);
      const before = await elementsOf(lab);
      const chain = ['list', 'chain', 'inet', 'catena_firewall', 'forward'];
      const { stdout } = await lab.run(lab.host, ['nft', '-a', ...chain]);
      const [, handle] = /ip daddr @pods4 accept # handle (\d+)/.exec(stdout) ?? [];
      await nft(lab, `replace rule inet catena_firewall forward handle ${handle} ip daddr @pods4 drop`);
      expect((await check(lab, a)).error?.msg).toContain('rules of chain "forward" are not ours');
      expect(await check(lab, a, { env: { CATENA_REPAIR: '1' } })).toMatchObject({ exitCode: 0 });
      expect((await check(lab, b)).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual(before);
    });

    test('a count that others deleted is right again with the first change, so DEL of one pod opens no other', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      const closed = { conf: { ingressPolicy: 'isolated' } };
      for (const pod of [a, b]) await add(lab, pod, closed);
      const before = await elementsOf(lab);
      await nft(lab, 'flush map inet catena_firewall tally');
      expect((await add(lab, a, closed)).exitCode).toBe(0);
      expect((await elementsOf(lab)).tally).toEqual(before.tally);
      await nft(lab, 'flush map inet catena_firewall tally');
      await del(lab, a, closed);
      expect((await elementsOf(lab)).closed).toEqual(before.closed);
      expect((await check(lab, b, closed)).exitCode).toBe(0);
    });

    test('after others deleted claims, repair counts again, and DEL and GC remove what no claim leads to', async () => {
      const { lab, a } = await twoBridges(createLab);
      const closed = { conf: { ingressPolicy: 'isolated' }, prevResult: prevResultOf(a) };
      await add(lab, a, closed);
      const before = await elementsOf(lab);
      const flush = async () => {
        for (const name of ['claims4', 'claims6']) await nft(lab, `flush map inet catena_firewall ${name}`);
      };
      await flush();
      expect(await check(lab, a, { ...closed, env: { CATENA_REPAIR: '1' } })).toMatchObject({ exitCode: 0 });
      expect((await elementsOf(lab)).tally).toEqual(before.tally);
      await del(lab, a, closed);
      expect(await elementsOf(lab)).toEqual({});
      const collect = async () => {
        // What iptables accepts stays for as long as a pod has the address.
        await lab.ip(a, 'addr', 'flush', 'dev', 'eth0');
        return await gc(lab, []);
      };
      for (const release of [() => del(lab, a, closed), collect]) {
        await add(lab, a, closed);
        await flush();
        expect(await release()).toMatchObject({ exitCode: 0 });
        expect(await elementsOf(lab)).toEqual({});
        expect((await rulesOf(lab)).filter(rule => rule.includes(a.v4))).toEqual([]);
      }
    });

    test('GC removes invalid attachments, of its own network only', async () => {
      const { lab, a, b, c } = await twoBridges(createLab);
      const closed = { conf: { ingressPolicy: 'isolated' } };
      await add(lab, a, closed);
      await add(lab, b, closed);
      await add(lab, c, { ...closed, network: 'other' });
      const before = await elementsOf(lab);
      expect((await gc(lab, [a, b])).exitCode).toBe(0);
      expect(await elementsOf(lab)).toEqual(before);
      expect((await gc(lab, [a])).exitCode).toBe(0);
      const after = await elementsOf(lab);
      expect(after.pods4).toHaveLength(2);
      expect(after.tally?.map(row => `${row[0]} ${row[1]}`).sort()).toEqual(['br1 2', 'br2 2']);
      expect((await check(lab, a, closed)).exitCode).toBe(0);
      expect((await check(lab, b, closed)).exitCode).toBe(1);
    });

    test.each(['nftables', 'iptables'])(
      'ADD with %s that fails at the nth request leaves nothing',
      async backend => {
        const conf = { backend, ingressPolicy: 'isolated' };
        const { lab, a } = await twoBridges(createLab);
        const failed = await failInTurn(async request => {
          await nft(lab, 'flush ruleset');
          const before = await lab.dump(lab.host, TABLES);
          const reply = await add(lab, a, { conf, env: { CATENA_FAULT: `kernel:${request}` } });
          const what = faultIn(reply.stderr)?.what;
          if (reply.exitCode === 0) return what;
          expect(reply.error?.details ?? '').not.toContain('could not be undone');
          expect(await elementsOf(lab)).toEqual({});
          if (backend === 'nftables') expect(await lab.dump(lab.host, TABLES)).toEqual(before);
          else expect((await rulesOf(lab)).join('\n')).not.toMatch(/br1|10\.9\./);
          return what;
        });
        expect(failed.length).toBeGreaterThan(5);
      },
      DEADLINE_MS,
    );

    test('invalid input is refused before anything is changed', async () => {
      const { lab, a } = await twoBridges(createLab);
      const lonely = { ...prevResultOf(a), interfaces: [{ name: 'eth0', sandbox: a.path }] };
      const cases: [Call, number, string][] = [
        [{ conf: { backend: 'pf' } }, 7, '"pf"'],
        [{ conf: { ingressPolicy: 'closed' } }, 7, '"closed"'],
        [{ conf: { ingressPolicy: 'isolated' }, prevResult: lonely }, 7, 'no interface'],
        [{ prevResult: undefined }, 7, 'prevResult'],
      ];
      for (const [call, code, words] of cases) {
        const refused = await add(lab, a, call);
        expect(refused).toMatchObject({ exitCode: 1, error: { code } });
        expect(refused.error?.msg).toContain(words);
      }
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
    });

    test('ADD accepts the empty backend of Podman’s list, and returns a result without addresses', async () => {
      const { lab, a } = await twoBridges(createLab);
      expect((await add(lab, a, { conf: { backend: '' } })).exitCode).toBe(0);
      const none = { cniVersion: LATEST_SPEC_VERSION, ips: [] };
      const trace = { CATENA_NETLINK_TRACE: '1' };
      expect(await add(lab, a, { prevResult: none, env: trace })).toMatchObject({ exitCode: 0, stderr: '' });
    });

    test('CHECK and STATUS warn of a foreign table that drops', async () => {
      const { lab, a } = await twoBridges(createLab);
      await nft(
        lab,
        'add table ip other',
        'add chain ip other fw { type filter hook forward priority 0; policy drop; }',
      );
      await add(lab, a);
      const words = expect.stringMatching(/chain .*fw.* of table .*ip other.* drops forwarded packets/);
      expect(await check(lab, a)).toMatchObject({ exitCode: 0, stderr: words });
      expect(await status(lab)).toMatchObject({ exitCode: 0, stderr: words });
    });

    test('STATUS lets the kernel check the rules and leaves nothing', async () => {
      const { lab } = await twoBridges(createLab);
      for (const ingressPolicy of ['open', 'isolated']) {
        expect(await status(lab, { ingressPolicy })).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
      }
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
      expect((await status(lab, { ingressPolicy: 'closed' })).error?.code).toBe(7);
      await nft(
        lab,
        'add table inet catena_firewall',
        'add set inet catena_firewall pods4 { type ipv6_addr; }',
      );
      expect(await status(lab)).toMatchObject({ exitCode: 1, error: { code: 50 } });
    });

    testNeeding(
      'STATUS without the right to change the packet filter is code 50',
      async () => {
        const lab = await createLab();
        const argv = ['setpriv', '--reuid', '65534', '--clear-groups', `${BIN_DIR}/firewall`];
        const { stdout, exitCode } = await lab.run(lab.host, argv, {
          env: { CNI_COMMAND: 'STATUS', CNI_PATH: BIN_DIR },
          stdin: JSON.stringify(confOf({})),
        });
        expect(exitCode).toBe(1);
        expect(JSON.parse(stdout)).toMatchObject({ code: 50, msg: expect.stringContaining('EPERM') });
      },
      requires('setpriv'),
    );

    testNeeding(
      'DEL without the right to ask the packet filter says so at once',
      async () => {
        const { lab, a } = await twoBridges(createLab);
        const { result } = await add(lab, a);
        const binDir = startedBy(
          lab,
          'firewall',
          'setpriv --bounding-set=-net_admin --inh-caps=-net_admin --',
        );
        const call = { command: 'DEL', conf: confOf({}), container: a, prevResult: result };
        const refused = await lab.plugin('firewall', { ...call, binDir, timeoutMs: deadline(15_000) });
        expect(refused.error?.msg).toContain('operation not permitted (EPERM)');
        expect((await lab.plugin('firewall', call)).exitCode).toBe(0);
      },
      requires('setpriv'),
    );
  },
  requires('ip', 'nft', 'ping'),
);

describeRoot(
  'firewall with iptables',
  () => {
    const createLab = useLabs();
    const iptables = { conf: { backend: 'iptables' } };

    test.each(FAMILIES)(
      'ADD accepts IP%s where iptables drops, without being configured to',
      async family => {
        const { lab, outside, a } = await twoBridges(createLab);
        for (const tool of ['iptables', 'ip6tables'])
          await lab.run(lab.host, [tool, '-P', 'FORWARD', 'DROP']);
        // Without a link-local address the host finds its neighbour only for itself.
        expect(await ping(lab, lab.host, outside.address[family])).toBe(true);
        expect(await reaches(lab, a, outside.address[family])).toBe(false);
        for (const conf of [{}, { backend: '' }, { backend: 'iptables' }]) {
          expect(await add(lab, a, { conf })).toMatchObject({
            exitCode: 0,
            result: prevResultOf(a),
            stderr: '',
          });
          expect(await ping(lab, a, outside.address[family])).toBe(true);
          expect(await check(lab, a, { conf })).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
          expect((await del(lab, a, { conf: { backend: 'nftables' } })).exitCode).toBe(0);
          expect(await reaches(lab, a, outside.address[family])).toBe(false);
          expect(await elementsOf(lab)).toEqual({});
        }
        expect(await status(lab, { backend: 'iptables' })).toMatchObject({ exitCode: 0, stderr: '' });
        expect((await status(lab)).stderr).toContain('drops forwarded packets');
      },
      DEADLINE_MS,
    );

    test('ADD has the rules of the reference, once', async () => {
      const { lab, a } = await twoBridges(createLab);
      await add(lab, a, iptables);
      const once = await rulesOf(lab);
      expect(once).toEqual([
        '-N CNI-ADMIN',
        '-N CNI-FORWARD',
        '-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
        '-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN',
        `-A CNI-FORWARD -d ${a.v4}/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
        `-A CNI-FORWARD -s ${a.v4}/32 -j ACCEPT`,
        `-A CNI-FORWARD -d ${a.v4}/32 -m conntrack --ctstate DNAT -j ACCEPT`,
      ]);
      expect(await rulesOf(lab, 'ip6tables')).toContain(`-A CNI-FORWARD -s ${a.v6}/128 -j ACCEPT`);
      const elements = await elementsOf(lab);
      expect((await add(lab, a, iptables)).exitCode).toBe(0);
      expect(await rulesOf(lab)).toEqual(once);
      expect(await elementsOf(lab)).toEqual(elements);
      expect((await add(lab, a)).exitCode).toBe(0);
      expect(await rulesOf(lab)).toEqual(once);
      expect((await add(lab, a, { conf: { backend: 'nftables' } })).exitCode).toBe(0);
      expect(await rulesOf(lab)).toEqual(once.slice(0, 4));
      expect((await elementsOf(lab)).iptables4).toBeUndefined();
    });

    test('DEL removes its own rules, and those of the interface with the last of its pods', async () => {
      const { lab, a, b, c } = await twoBridges(createLab);
      const conf = {
        conf: { backend: 'iptables', ingressPolicy: 'isolated', iptablesAdminChainName: 'OURS' },
      };
      for (const pod of [a, b, c]) expect((await add(lab, pod, conf)).exitCode).toBe(0);
      const all = (await rulesOf(lab)).join('\n');
      expect(all).toMatch(/-A FORWARD .*STAGE-1\n-A FORWARD .*CNI-FORWARD\n/);
      expect(all).toMatch(/STAGE-1 -i br1 -o br1 .*DROP\n.*STAGE-1 -i br1 ! -o br1 .*STAGE-2\n/);
      expect(all).toContain('-j OURS');
      await del(lab, { ...a, path: '' });
      const fewer = (await rulesOf(lab)).join('\n');
      expect(fewer).not.toContain(`${a.v4}/32`);
      expect(fewer).toContain(`${b.v4}/32`);
      expect(fewer).toContain('-i br1 ');
      for (const pod of [b, c]) await del(lab, pod);
      expect((await rulesOf(lab)).join('\n')).not.toMatch(/br\d|10\.9\./);
      expect(await elementsOf(lab)).toEqual({});
    });

    test.each(FAMILIES)('ingressPolicy holds between both backends by IP%s', async family => {
      const { lab, outside, a, b, c } = await twoBridges(createLab);
      await add(lab, a, { conf: { backend: 'iptables', ingressPolicy: 'same-bridge' } });
      await add(lab, b, { conf: { backend: 'iptables', ingressPolicy: 'isolated' } });
      await add(lab, c, { conf: { ingressPolicy: 'same-bridge' } });
      expect(await ping(lab, outside, a[family])).toBe(true);
      const barred = [reaches(lab, a, b[family]), reaches(lab, a, c[family]), reaches(lab, c, a[family])];
      expect(await Promise.all(barred)).toEqual([false, false, false]);
    });

    test('CHECK names what is missing, and ADD restores it in order', async () => {
      const { lab, a } = await twoBridges(createLab);
      const conf = { conf: { backend: 'iptables', ingressPolicy: 'same-bridge' } };
      const cases: [string, string][] = [
        ['-F FORWARD', '-I FORWARD 1'],
        ['-F CNI-FORWARD', 'CNI-ADMIN'],
        [`-D CNI-FORWARD -s ${a.v4}/32 -j ACCEPT`, `-s ${a.v4}/32`],
        ['-F CNI-ISOLATION-STAGE-2', '-o br1'],
        ['-F CNI-ISOLATION-STAGE-1', '-i br1'],
        ['-F', '-I CNI-FORWARD 1'],
      ];
      for (const [command, words] of cases) {
        expect((await add(lab, a, conf)).exitCode).toBe(0);
        expect(await check(lab, a, conf)).toMatchObject({ exitCode: 0 });
        expect((await lab.run(lab.host, ['iptables', ...command.split(' ')])).exitCode).toBe(0);
        const checked = await check(lab, a, conf);
        expect(checked).toMatchObject({ exitCode: 1, error: { code: 999 } });
        expect(checked.error?.msg).toContain(words);
      }
      await lab.run(lab.host, ['iptables', '-D', 'FORWARD', '1']);
      await add(lab, a, conf);
      const forward = (await rulesOf(lab)).filter(rule => rule.startsWith('-A FORWARD'));
      expect(forward.map(rule => rule.split(' ').at(-1))).toEqual(['CNI-ISOLATION-STAGE-1', 'CNI-FORWARD']);
    });

    test('a foreign table "filter" is left alone: ADD does without it, unless configured to use iptables', async () => {
      const { lab, a } = await twoBridges(createLab);
      const own = 'chain ip filter forward { type filter hook forward priority 0; policy drop; }';
      await nft(lab, 'add table ip filter', `add ${own}`);
      const before = (await lab.run(lab.host, ['nft', 'list', 'table', 'ip', 'filter'])).stdout;
      const failed = await add(lab, a, iptables);
      expect(failed).toMatchObject({ exitCode: 1, error: { code: 999 } });
      expect(failed.error?.msg).toContain('the table "filter" is foreign');
      expect(await elementsOf(lab)).toEqual({});
      expect((await add(lab, a)).exitCode).toBe(0);
      expect((await check(lab, a)).exitCode).toBe(0);
      expect((await lab.run(lab.host, ['nft', 'list', 'table', 'ip', 'filter'])).stdout).toBe(before);
      expect(await rulesOf(lab, 'ip6tables')).toContain(`-A CNI-FORWARD -s ${a.v6}/128 -j ACCEPT`);
    });

    test('many ADDs and DELs at once leave each rule once, then none', async () => {
      const { lab, a } = await twoBridges(createLab);
      const pods = Array.from({ length: 6 }, (_, i) => {
        return { ...a, id: `${a.id}x${i}`, v4: `10.9.1.${50 + i}`, v6: `fd00:9:1::${50 + i}` };
      });
      const added = await Promise.all(pods.map(pod => add(lab, pod, iptables)));
      expect(added.map(({ exitCode, stdout }) => (exitCode ? stdout : ''))).toEqual(Array(6).fill(''));
      const rules = await rulesOf(lab);
      expect(new Set(rules).size).toBe(rules.length);
      expect(rules).toHaveLength(4 + 3 * 6);
      await Promise.all(pods.map(pod => del(lab, pod)));
      expect(await rulesOf(lab)).toHaveLength(4);
    });

    test('GC removes invalid attachments from iptables, too', async () => {
      const { lab, a, b } = await twoBridges(createLab);
      const conf = { conf: { backend: 'iptables', ingressPolicy: 'same-bridge' } };
      for (const pod of [a, b]) await add(lab, pod, conf);
      expect((await gc(lab, [a])).exitCode).toBe(0);
      const rules = (await rulesOf(lab)).join('\n');
      expect(rules).toContain(a.v4);
      expect(rules).not.toContain(b.v4);
      expect((await check(lab, a, conf)).exitCode).toBe(0);
      expect((await gc(lab, [])).exitCode).toBe(0);
      expect((await rulesOf(lab)).join('\n')).not.toContain('br1');
    });

    testNeeding(
      'iptables-legacy that drops gets the rules too, and is reported if it lacks them',
      async () => {
        const { lab, outside, a } = await twoBridges(createLab);
        for (const tool of ['iptables-legacy', 'ip6tables-legacy'])
          await lab.run(lab.host, [tool, '-P', 'FORWARD', 'DROP']);
        for (const family of FAMILIES) {
          expect(await ping(lab, lab.host, outside.address[family])).toBe(true);
          expect(await reaches(lab, a, outside.address[family])).toBe(false);
        }
        const words = expect.stringMatching(/chain .*FORWARD.* of ip6?tables-legacy drops forwarded packets/);
        expect((await status(lab)).stderr).toEqual(words);
        const nftables = { conf: { backend: 'nftables' } };
        expect(await add(lab, a, nftables)).toMatchObject({ exitCode: 0 });
        expect(await check(lab, a, nftables)).toMatchObject({ exitCode: 0, stderr: words });
        expect(await add(lab, a)).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await check(lab, a)).toMatchObject({ exitCode: 0, stderr: '' });
        for (const family of FAMILIES) expect(await ping(lab, a, outside.address[family])).toBe(true);
        expect(await rulesOf(lab, 'ip6tables-legacy')).toContain(`-A CNI-FORWARD -s ${a.v6}/128 -j ACCEPT`);
        await lab.run(lab.host, ['iptables-legacy', '-D', 'CNI-FORWARD', '-s', a.v4, '-j', 'ACCEPT']);
        expect((await check(lab, a)).error?.msg).toContain('rules of iptables-legacy');
        expect(await del(lab, a)).toMatchObject({ exitCode: 0, stderr: '' });
        for (const tool of ['iptables', 'ip6tables']) {
          for (const rules of [await rulesOf(lab, tool), await rulesOf(lab, `${tool}-legacy`)]) {
            expect(rules.join('\n')).not.toMatch(/10\.9\.|fd00:9/);
          }
        }
      },
      requires('iptables-legacy', 'ip6tables-legacy', 'iptables-legacy-restore', 'iptables-legacy-save'),
    );

    testNeeding(
      'GC removes only what the reference left for pods and bridges that no longer exist',
      async () => {
        const { lab, a, b, c } = await twoBridges(createLab);
        const conf = confOf({ version: '1.0.0', conf: { ingressPolicy: 'same-bridge' } });
        for (const pod of [a, b, c]) {
          const call = { container: pod, conf, prevResult: prevResultOf(pod, '1.0.0') };
          const added = await lab.plugin('firewall', { command: 'ADD', ...call, binDir: REFERENCE_BIN_DIR });
          expect(added.exitCode).toBe(0);
        }
        // Not of the reference's making: no answers come back by it.
        const byHand = ['CNI-FORWARD', '-s', '192.0.2.7/32', '-j', 'ACCEPT'];
        await lab.run(lab.host, ['iptables', '-A', ...byHand]);
        const before = await rulesOf(lab);
        expect(await gc(lab, [])).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await rulesOf(lab)).toEqual(before);
        await lab.remove(c);
        // The kernel takes a namespace apart when it has time, and until then the pair is there.
        await until(async () => (await lab.ip(lab.host, 'link', 'show', 'master', 'br2')).length === 0);
        await lab.ip(lab.host, 'link', 'delete', 'br1');
        expect(await gc(lab, [])).toMatchObject({ exitCode: 0, stderr: '' });
        const after = (await rulesOf(lab)).join('\n');
        expect(after).not.toMatch(/br\d|10\.9\./);
        expect(after).toContain(`-A ${byHand.join(' ')}`);
        expect((await rulesOf(lab, 'ip6tables')).join('\n')).not.toMatch(/br\d|fd00:9/);
      },
      requiresReference('firewall'),
    );

    testNeeding(
      'the reference accepts and removes what ours added, and the reverse',
      async () => {
        const { lab, a, b } = await twoBridges(createLab);
        const reference = (command: string, pod: Pod) => {
          const conf = confOf({ version: '1.0.0', ...iptables });
          const prevResult = prevResultOf(pod, '1.0.0');
          const binDir = REFERENCE_BIN_DIR;
          return lab.plugin('firewall', { command, container: pod, conf, prevResult, binDir });
        };
        await add(lab, a, iptables);
        expect((await reference('CHECK', a)).exitCode).toBe(0);
        expect((await reference('DEL', a)).exitCode).toBe(0);
        // It does not know the rule for published ports, which our DEL removes.
        expect(await rulesOf(lab)).toHaveLength(5);
        expect((await check(lab, a, iptables)).error?.msg).toContain(`-d ${a.v4}/32`);
        expect((await del(lab, a)).exitCode).toBe(0);
        for (const pod of [a, b]) expect((await reference('ADD', pod)).exitCode).toBe(0);
        expect(await rulesOf(lab)).toHaveLength(8);
        const conf = confOf({});
        const call = { command: 'DEL', container: a, conf, prevResult: prevResultOf(a) };
        expect((await lab.plugin('firewall', call)).exitCode).toBe(0);
        expect(await rulesOf(lab)).toHaveLength(6);
        // An address that has a new owner is not garbage.
        const heir = { ...a, v4: b.v4, v6: b.v6 };
        expect(await add(lab, heir, iptables)).toMatchObject({ error: { code: 101 } });
        await lab.ip(b, 'addr', 'flush', 'dev', 'eth0');
        expect(await add(lab, heir, iptables)).toMatchObject({ exitCode: 0 });
        // The heir's three rules are those that stay.
        const late = { ...call, container: b, prevResult: prevResultOf(b) };
        expect((await lab.plugin('firewall', late)).exitCode).toBe(0);
        expect(await rulesOf(lab)).toHaveLength(7);
      },
      requiresReference('firewall'),
    );

    testNeeding(
      'CHECK accepts the complete rules of the reference in place of our sets',
      async () => {
        const { lab, a } = await twoBridges(createLab);
        const conf = confOf({ version: '1.0.0' });
        const prevResult = prevResultOf(a, '1.0.0');
        const binDir = REFERENCE_BIN_DIR;
        const own = { command: 'CHECK', container: a, conf, prevResult };
        expect((await lab.plugin('firewall', own)).exitCode).toBe(1);
        expect((await lab.plugin('firewall', { ...own, command: 'ADD', binDir })).exitCode).toBe(0);
        expect(await lab.plugin('firewall', own)).toMatchObject({ exitCode: 0, stderr: '' });
        for (const family of ['iptables', 'ip6tables']) {
          const lines = (await lab.run(lab.host, [`${family}-save`, '-t', 'filter'])).stdout.split('\n');
          const rules = lines.filter(line => line.startsWith('-A'));
          expect(rules.length).toBeGreaterThanOrEqual(4);
          const put = (text: string) => lab.run(lab.host, [`${family}-restore`], { stdin: text });
          for (const rule of rules) {
            await put(lines.filter(line => line !== rule).join('\n'));
            const { error } = await lab.plugin('firewall', own);
            expect([rule, error?.msg]).toEqual([
              rule,
              expect.stringContaining('Cannot confirm rules in tables'),
            ]);
          }
          await put(lines.join('\n'));
        }
        expect(await lab.plugin('firewall', own)).toMatchObject({ exitCode: 0, stderr: '' });
      },
      requiresReference('firewall'),
    );
  },
  requires('ip', 'nft', 'ping', 'iptables', 'ip6tables'),
);

async function setBridgeFilter(lab: Lab, value: string): Promise<void> {
  for (const key of ['iptables', 'ip6tables']) {
    // Only there when the kernel can send bridged packets through the packet filter at all.
    await lab.run(lab.host, ['sysctl', '-w', `net.bridge.bridge-nf-call-${key}=${value}`]);
  }
}

function elem(comment: string, val: unknown): Row {
  return { elem: { val, comment } };
}
