// Does `catena compare` find what is wrong with a plugin, and nothing where nothing is?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AS_ORDINARY_USER, CATENA, requiresOrdinaryUser } from '../helpers/catena.ts';
import { run, TEST_PATH } from '../helpers/command.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

const LIST = join(ROOT, 'conflists/bridge-full.conflist');
const DEADLINE_MS = 120_000;

/** What is wrong, of which plugin, the scene in which it shows, and how it is reported. */
const BROKEN: readonly [name: string, plugin: string, scene: string, line: RegExp][] = [
  [
    'wrong-gateway',
    'bridge',
    'life',
    /^ADD container: route default IPv4 on eth0, via: 10.22.0.1 \| 10.22.0.254$/,
  ],
  [
    'missing-route',
    'bridge',
    'life',
    /^ADD container: route default IPv6 on eth0: via fd00:22::1.* \| nothing$/,
  ],
  ['wrong-mtu', 'bridge', 'life', /^ADD container: link eth0, mtu: 1500 \| 1300$/],
  [
    'leaked-rule',
    'bridge',
    'life',
    /^ADD host: rule IPv4 .*from 10.22.0.0\/16 lookup 77: nothing \| exists$/,
  ],
  [
    'leaked-iptables-rule',
    'bridge',
    'life',
    /^ADD host: iptables ip filter: -A FORWARD -s 10.22.0.2\/32 .*: nothing/,
  ],
  ['stray-neighbour', 'bridge', 'life', /^ADD host: neighbour 10.22.0.2 on cni0: nothing \| mac/],
  ['stray-address', 'bridge', 'life', /^ADD host: address 10.99.0.1\/24 on cni0: nothing/],
  ['stray-file', 'bridge', 'life', /^ADD files: \/run\/stray\/file: nothing \| x$/],
  ['false-result', 'bridge', 'life', /^ADD result: ips\.0\.gateway: 10.22.0.1 \| nothing$/],
  ['leaked-interface', 'bridge', 'life', /^DEL host: link veth#1: nothing \| kind veth/],
  ['deaf-check', 'bridge', 'damaged', /^CHECK of damage answer: it fails with code .* \| it succeeds$/],
  [
    'needs-namespace',
    'bridge',
    'namespace gone',
    /^DEL without the namespace answer: it succeeds \| it fails/,
  ],
  ['one-port-only', 'portmap', 'life', /^ADD host: nftables .*53.* \| nothing$/],
  ['leaked-ports', 'portmap', 'life', /^DEL host: nftables .*8080.*: nothing \| element/],
  [
    'wrong-rate',
    'bandwidth',
    'life',
    /^ADD host: traffic control qdisc .*, tbf rateBytes: 2500000 \| 1250000$/,
  ],
  ['forgotten-sysctl', 'tuning', 'life', /^ADD container: sysctl net\/core\/somaxconn: 512 \| 4096$/],
];

let tmp = '';

interface Told {
  readonly step: string;
  readonly where: string;
  readonly what: string;
  readonly first?: string;
  readonly second?: string;
}

async function compare(...args: string[]) {
  const argv = [CATENA, 'compare', ...args, '--json'];
  const { exitCode, stdout, stderr } = await run(argv, { env: { PATH: TEST_PATH }, timeoutMs: DEADLINE_MS });
  expect(stderr).toBe('');
  const { same, links } = JSON.parse(stdout);
  const lines = (told: readonly Told[]) =>
    told.map(({ step, where, what, first = 'nothing', second = 'nothing' }) => {
      const subject = [where, what].filter(Boolean).join(': ');
      return `${step} ${subject}: ${first} | ${second}`;
    });
  const byPlugin = links.map(({ link, differences }: { link: string; differences: Told[] }) => {
    return [link, lines(differences)] as const;
  });
  return { exitCode, same, byPlugin: new Map<string, string[]>(byPlugin) };
}

/** A directory with one broken plugin, under its name. */
function brokenDir(name: string, plugin: string): string {
  const dir = join(tmp, name);
  fs.mkdirSync(dir, { recursive: true });
  if (!fs.existsSync(join(dir, plugin))) fs.linkSync(join(tmp, 'broken'), join(dir, plugin));
  return dir;
}

describeRoot(
  'catena compare',
  () => {
    beforeAll(async () => {
      tmp = fs.mkdtempSync(join(tmpdir(), 'cat-compare-'));
      fs.chmodSync(tmp, 0o755);
      await Bun.build({
        entrypoints: [join(import.meta.dir, '../fixtures/broken-plugins.ts')],
        target: 'bun',
        compile: { outfile: join(tmp, 'broken') },
      });
    });
    afterAll(() => fs.rmSync(tmp, { recursive: true, force: true }));

    test(
      'finds nothing between a set of executables and itself, in any scene',
      async () => {
        const { exitCode, same, byPlugin } = await compare('--with', BIN_DIR, LIST);
        expect([...byPlugin.values()].flat()).toEqual([]);
        expect([exitCode, same]).toEqual([0, true]);
      },
      DEADLINE_MS,
    );

    test.each(BROKEN)('finds %s of %s in "%s"', async (name, plugin, scene, line) => {
      const dir = brokenDir(name, plugin);
      const { exitCode, byPlugin } = await compare('--with', dir, '--scene', scene, LIST);
      expect(exitCode).toBe(1);
      const told = byPlugin.get(plugin) ?? [];
      expect(told.filter(one => line.test(one))).not.toEqual([]);
    });

    test('--link takes one entry of two with the same type', async () => {
      const dir = brokenDir('forgotten-sysctl', 'tuning-of-mine');
      const list = join(tmp, 'two.conflist');
      const plugins = [
        { type: 'ptp', ipam: { type: 'host-local', subnet: '10.5.0.0/24' } },
        { type: 'tuning', sysctl: { 'net.core.somaxconn': '512' } },
        { type: 'tuning', sysctl: { 'net.ipv4.conf.all.log_martians': '1' } },
      ];
      fs.writeFileSync(list, JSON.stringify({ cniVersion: '1.0.0', name: 'two', plugins }));
      const swap = ['--with', join(dir, 'tuning-of-mine'), '--scene', 'life'];
      const { exitCode, byPlugin } = await compare(...swap, '--link', '2', list);
      expect(exitCode).toBe(1);
      const all = [...byPlugin.values()].flat();
      expect(all.some(line => line.includes('log_martians'))).toBe(true);
      expect(all.some(line => line.includes('sysctl net/core/somaxconn'))).toBe(false);
    });

    test('--ignore leaves out intended differences', async () => {
      const dir = brokenDir('wrong-mtu', 'bridge');
      const ignored = ['--ignore', 'link eth0, mtu: 1500', '--ignore', 'sysctl .*/mtu'];
      const { exitCode, byPlugin } = await compare('--with', dir, '--scene', 'life', ...ignored, LIST);
      expect([...byPlugin.values()].flat()).toEqual([]);
      expect(exitCode).toBe(0);
    });

    testNeeding(
      'works for an ordinary user',
      async () => {
        const argv = [...AS_ORDINARY_USER, CATENA, 'compare', '--with', BIN_DIR, '--scene', 'life', LIST];
        const { exitCode, stdout, stderr } = await run(argv, {
          env: { PATH: TEST_PATH },
          timeoutMs: DEADLINE_MS,
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
          '--link',
          'tuning',
          '--scene',
          'life',
          LIST,
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
        const argv = [CATENA, 'compare', '--json', '--with', REFERENCE_BIN_DIR, LIST];
        const { stdout } = await run([...argv, ...scenes.flatMap(scene => ['--scene', scene])], {
          env: { PATH: TEST_PATH },
          timeoutMs: DEADLINE_MS,
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
      [[LIST], 2, '--with <dir or executable>'],
      [['--with', '/nonexistent', LIST], 1, 'it does not exist'],
      [['--with', BIN_DIR, '--scene', 'war', LIST], 2, 'Cannot run scenario "war"'],
      [['--with', BIN_DIR, '--ignore', '(', LIST], 2, 'Cannot use --ignore "("'],
    ])('refuses %j', async (args, exitCode, gist) => {
      const refused = await run([CATENA, 'compare', ...args], { env: { PATH: TEST_PATH } });
      expect([refused.exitCode, refused.stderr]).toEqual([exitCode, expect.stringContaining(gist)]);
    });
  },
  requires('ip', 'iptables'),
);
