// Does `catena compare` do what its options say? compare-table.test.ts has a table of broken plugins.
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { join } from 'node:path';
import { AS_ORDINARY_USER, CATENA, requiresOrdinaryUser } from '../helpers/catena.ts';
import { run, TEST_PATH } from '../helpers/command.ts';
import { brokenDir, buildBroken, COMPARE_DEADLINE_MS, COMPARED, compare } from '../helpers/compare.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';

let tmp = '';

describeRoot(
  'catena compare',
  () => {
    beforeAll(async () => {
      tmp = await buildBroken();
    });
    afterAll(() => fs.rmSync(tmp, { recursive: true, force: true }));

    test('--plugin takes one entry of two with the same type', async () => {
      const dir = brokenDir(tmp, 'forgotten-sysctl', 'tuning-of-mine');
      const list = join(tmp, 'two.conflist');
      const plugins = [
        { type: 'ptp', ipam: { type: 'host-local', subnet: '10.5.0.0/24' } },
        { type: 'tuning', sysctl: { 'net.core.somaxconn': '512' } },
        { type: 'tuning', sysctl: { 'net.ipv4.conf.all.log_martians': '1' } },
      ];
      fs.writeFileSync(list, JSON.stringify({ cniVersion: '1.0.0', name: 'two', plugins }));
      const swap = ['--with', join(dir, 'tuning-of-mine'), '--scene', 'life'];
      const { exitCode, byPlugin } = await compare(...swap, '--plugin', '2', list);
      expect(exitCode).toBe(1);
      const all = [...byPlugin.values()].flat();
      expect(all.some(line => line.includes('log_martians'))).toBe(true);
      expect(all.some(line => line.includes('sysctl net/core/somaxconn'))).toBe(false);
    });

    test('--ignore leaves out intended differences', async () => {
      const dir = brokenDir(tmp, 'wrong-mtu', 'bridge');
      const ignored = ['--ignore', 'link eth0, mtu: 1500', '--ignore', 'sysctl .*/mtu'];
      const { exitCode, byPlugin } = await compare('--with', dir, '--scene', 'life', ...ignored, COMPARED);
      expect([...byPlugin.values()].flat()).toEqual([]);
      expect(exitCode).toBe(0);
    });

    testNeeding(
      'works for an ordinary user',
      async () => {
        const argv = [...AS_ORDINARY_USER, CATENA, 'compare', '--with', BIN_DIR, '--scene', 'life', COMPARED];
        const { exitCode, stdout, stderr } = await run(argv, {
          env: { PATH: TEST_PATH },
          timeoutMs: COMPARE_DEADLINE_MS,
        });
        expect([exitCode, stderr]).toEqual([0, '']);
        expect(stdout).toEndWith('no difference was found, but DEL of what A made was not tried\n');
      },
      requiresOrdinaryUser(),
    );

    testNeeding(
      'shows the differences of the reference, plugin by plugin',
      async () => {
        const { exitCode, byPlugin } = await compare(
          '--with',
          REFERENCE_BIN_DIR,
          '--plugin',
          'tuning',
          '--scene',
          'life',
          COMPARED,
        );
        expect(exitCode).toBe(1);
        expect(byPlugin.get('bridge')).toEqual([]);
        expect(byPlugin.get('tuning')?.join('\n')).toContain('files: /run/cni/tuning/');
      },
      requiresReference('tuning'),
    );

    testNeeding(
      'reports that the reference cannot delete attachments of ours unless they are handed over',
      async () => {
        const scenes = ['ADD by A, DEL', 'ADD by B, DEL', 'ADD by A, handed over, DEL'];
        const argv = [CATENA, 'compare', '--json', '--with', REFERENCE_BIN_DIR, COMPARED];
        const { stdout } = await run([...argv, ...scenes.flatMap(scene => ['--scene', scene])], {
          env: { PATH: TEST_PATH },
          timeoutMs: COMPARE_DEADLINE_MS,
        });
        const { crossings } = JSON.parse(stdout);
        expect(crossings).toMatchObject([
          {
            scene: scenes[0],
            maker: 'A',
            verb: 'DEL',
            by: 'B',
            handedOver: false,
            fails: [expect.stringMatching(/^bridge: .*does not exist/s)],
          },
          { maker: 'B', by: 'A', fails: [], left: [] },
          { maker: 'A', by: 'B', handedOver: true, fails: [], left: [] },
        ]);
        expect(crossings[0].left.join('\n')).toMatch(/8080 → 10\.22\.0\.2 \. 80/);
      },
      requiresReference('bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'),
      requires('iptables'),
    );

    test.each([
      [[COMPARED], 2, '--with <dir or executable>'],
      [['--with', '/nonexistent', COMPARED], 1, 'it does not exist'],
      [['--with', BIN_DIR, '--scene', 'war', COMPARED], 2, 'Cannot run scenario "war"'],
      [['--with', BIN_DIR, '--ignore', '(', COMPARED], 2, 'Cannot use --ignore "("'],
    ])('refuses %j', async (args, exitCode, gist) => {
      const refused = await run([CATENA, 'compare', ...args], { env: { PATH: TEST_PATH } });
      expect([refused.exitCode, refused.stderr]).toEqual([exitCode, expect.stringContaining(gist)]);
    });
  },
  requires('ip', 'iptables'),
);
