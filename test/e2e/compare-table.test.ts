// Does `catena compare` find what is wrong with a plugin, and nothing where nothing is?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { join } from 'node:path';
import { brokenDir, buildBroken, COMPARE_DEADLINE_MS, COMPARED, compare } from '../helpers/compare.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

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
  ['stray-pipe', 'bridge', 'life', /^ADD files: \/run\/notify: nothing \| pipe$/],
  ['spanning-tree', 'bridge', 'life', /^ADD host: link cni0, stpState: 0 \| 1$/],
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

/** The compared list without the plugins behind that one, whose sides are alike: they are most of the work. @returns its file */
function listUpTo(plugin: string, dir: string): string {
  const list = JSON.parse(fs.readFileSync(COMPARED, 'utf8'));
  const end = list.plugins.findIndex(({ type }: { type: string }) => type === plugin) + 1;
  const file = join(dir, 'list.conflist');
  fs.writeFileSync(file, JSON.stringify({ ...list, plugins: list.plugins.slice(0, end) }));
  return file;
}

describeRoot(
  'catena compare',
  () => {
    let tmp = '';
    beforeAll(async () => {
      tmp = await buildBroken();
    });
    afterAll(() => fs.rmSync(tmp, { recursive: true, force: true }));

    test(
      'finds nothing between a set of executables and itself, in any scene',
      async () => {
        const { exitCode, same, byPlugin } = await compare('--with', BIN_DIR, COMPARED);
        expect([...byPlugin.values()].flat()).toEqual([]);
        expect([exitCode, same]).toEqual([0, true]);
      },
      COMPARE_DEADLINE_MS,
    );

    test.each(BROKEN)('finds %s of %s in "%s"', async (name, plugin, scene, line) => {
      const dir = brokenDir(tmp, name, plugin);
      const { exitCode, byPlugin } = await compare('--with', dir, '--scene', scene, listUpTo(plugin, dir));
      expect(exitCode).toBe(1);
      const told = byPlugin.get(plugin) ?? [];
      expect(told.filter(one => line.test(one))).not.toEqual([]);
    });
  },
  requires('ip', 'iptables'),
);
