// Does `catena ipam` distinguish used addresses from forgotten ones, and free only the latter?

import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { noteBoot, thisBoot } from '../../src/ipam/lease-files.ts';
import { CATENA } from '../helpers/catena.ts';
import { type Chain, writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { untilExecuted } from '../helpers/until.ts';

function listOf(lab: Lab): Row {
  const ipam = {
    type: 'host-local',
    ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]],
    dataDir: `${lab.tmp}/leases`,
  };
  return { cniVersion: '1.1.0', name: 'podnet', plugins: [{ type: 'ptp', ipam }] };
}

interface Ground {
  readonly lab: Lab;
  readonly chain: Chain;
  ipam(...args: string[]): Promise<Finished>;
  /** State by address. */
  states(): Promise<Record<string, string>>;
  lease(address: string): string;
  /** As if it had been written some time ago. */
  age(...addresses: string[]): void;
}

function onGround(body: (ground: Ground) => Promise<void>): () => Promise<void> {
  return () =>
    withHost(async lab => {
      const chain = writeChain(lab, listOf(lab));
      const lease = (address: string) => `${lab.tmp}/leases/podnet/${address}`;
      const ipam: Ground['ipam'] = (...args) =>
        lab.run(lab.host, [CATENA, 'ipam', ...args], {
          env: { ...directories(lab.tmp), NETCONFPATH: lab.tmp },
        });
      await body({
        lab,
        chain,
        ipam,
        async states() {
          const { stdout } = await ipam('ls', 'podnet', '--json');
          return Object.fromEntries(JSON.parse(stdout).items.map((row: Row) => [row.address, row.state]));
        },
        lease,
        age(...addresses) {
          const then = Date.now() / 1000 - 3600;
          for (const address of addresses) utimesSync(lease(address), then, then);
        },
      });
    });
}

describeRoot('catena ipam', () => {
  test(
    'ls shows the owner of each lease, and whether it is still in use',
    onGround(async ({ lab, chain, ipam, states, lease, age }) => {
      const [one, two] = [await lab.container(), await lab.container()];
      await chain.add(one);
      await chain.add(two);
      writeFileSync(lease('10.88.0.77'), '');
      writeFileSync(lease('10.88.0.78'), '{another program}');
      writeFileSync(lease('10.88.0.79'), 'older');
      writeFileSync(lease('10.88.0.80'), 'fresh\r\neth0');
      await lab.remove(two);
      age('10.88.0.2', '10.88.0.3', 'fd88::3', '10.88.0.77', '10.88.0.78', '10.88.0.79');
      expect(await states()).toEqual({
        '10.88.0.2': 'live',
        '10.88.0.3': 'unused',
        '10.88.0.77': 'unused',
        '10.88.0.78': 'unknown',
        '10.88.0.79': 'unused',
        '10.88.0.80': 'new',
        'fd88::2': 'live',
        'fd88::3': 'unused',
      });
      const { stdout, stderr, exitCode } = await ipam('ls', 'podnet');
      expect([exitCode, stderr]).toEqual([0, '']);
      const lines = stdout.split('\n');
      expect(lines[0]).toMatch(/^NETWORK +ADDRESS +CONTAINER +INTERFACE +STATE$/);
      expect(lines[1]).toMatch(new RegExp(`^podnet +10\\.88\\.0\\.2 +${one.id} +eth0 +live$`));
      expect(lines).toContain('8 leases: 2 live, 1 new, 4 unused, 1 unknown');
      const all = await ipam('ls', '--data-dir', `${lab.tmp}/leases`);
      expect(all.stdout).toBe(stdout);
    }),
  );

  test(
    'an address of another node on this machine does not count as in use',
    onGround(async ({ lab, chain, states, age }) => {
      const container = await lab.container();
      await chain.add(container);
      await lab.remove(container);
      age('10.88.0.2', 'fd88::2');
      await withHost(async node => {
        const elsewhere = await node.container();
        await writeChain(node, listOf(node)).add(elsewhere);
        expect(await states()).toEqual({ '10.88.0.2': 'unused', 'fd88::2': 'unused' });
      });
      const stranger = await lab.container();
      const argv = ['ip', 'link', 'add', 'x0', 'type', 'veth', 'peer', 'x1', 'netns', stranger.name];
      await lab.run(lab.host, argv);
      await lab.run(stranger, ['ip', 'addr', 'add', '10.88.0.2/32', 'dev', 'x1']);
      expect(await states()).toEqual({ '10.88.0.2': 'live', 'fd88::2': 'unused' });
    }),
  );

  test(
    'why names lease, record, namespace and process',
    onGround(async ({ lab, chain, ipam, lease, age }) => {
      const container = await lab.container();
      await chain.add(container);
      const sleeper = lab.start(container, ['sleep', '60']);
      await untilExecuted(sleeper, 'sleep');
      const { stdout } = await ipam('why', 'podnet', '10.88.0.2');
      expect(stdout).toContain(
        `10.88.0.2 of network "podnet" is leased to container "${container.id}", interface "eth0"\n`,
      );
      expect(stdout).toContain(
        `- interface "eth0" has the address, in namespace "${container.path}" with process sleep (${sleeper.pid})`,
      );
      expect(stdout).toContain(`- an ADD is recorded for namespace "${container.path}", which exists\n`);
      expect(stdout).toContain('- the lease was used in this boot\n');
      expect(stdout).toContain(`- "${lease('10.88.0.2')}" was written 2`);
      expect(stdout).toEndWith('live: the address is in use\n');
      const json = JSON.parse((await ipam('why', 'podnet', '10.88.0.2', '--json')).stdout);
      expect(json).toMatchObject({
        address: '10.88.0.2',
        containerId: container.id,
        ifname: 'eth0',
        state: 'live',
      });
      await lab.remove(container);
      age('10.88.0.2');
      const gone = (await ipam('why', 'podnet', '10.88.0.2')).stdout;
      expect(gone).toContain('- no interface in any namespace of this machine has the address\n');
      expect(gone).toContain('which no longer exists\n');
      expect(gone).toEndWith('unused: its owner no longer exists\n');
      const missing = await ipam('why', 'podnet', '10.88.0.99');
      expect(missing).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('it is not leased') });
    }),
  );

  test(
    'free releases unused leases, and used ones only by force',
    onGround(async ({ lab, chain, ipam, lease, age }) => {
      const [one, two] = [await lab.container(), await lab.container()];
      await chain.add(one);
      await chain.add(two);
      const refused = await ipam('free', 'podnet', 'fd88:0:0::2');
      expect(refused.exitCode).toBe(1);
      expect(refused.stderr).toContain('Cannot free fd88::2 of network "podnet": it is in use');
      expect(refused.stderr).toContain('--force frees it anyway');
      expect(existsSync(lease('fd88::2'))).toBe(true);
      expect(await ipam('free', 'podnet', 'fd88::2', '--force')).toEqual({
        exitCode: 0,
        stdout: '',
        stderr: '',
      });
      expect(existsSync(lease('fd88::2'))).toBe(false);

      await lab.remove(two);
      expect((await ipam('free', 'podnet', '10.88.0.3')).stderr).toContain(
        'it is new, an ADD may be running',
      );
      age('10.88.0.3');
      expect((await ipam('free', 'podnet', '10.88.0.3')).exitCode).toBe(0);
      noteBoot(lease('fd88::3'), { ...thisBoot(), bootId: 'earlier' });
      expect((await ipam('free', 'podnet', 'fd88::3')).exitCode).toBe(0);
      expect(await chain.leases()).toEqual([lease('10.88.0.2')]);
      // The next container gets them after all others had their turn; the order of the set continues.
      expect((await chain.add(await lab.container())).ips.map((ip: Row) => ip.address)).toEqual([
        '10.88.0.4/24',
        'fd88::4/64',
      ]);
    }),
  );

  test.each([
    ['host-local', 'the directory', 3],
    ['host-local', 'the leases, then a container,', 4],
    ['host-local', 'the leases, which CHECK and STATUS have missed,', 4],
    ['host-local', 'all in the directory, which CHECK and STATUS have missed,', 3],
    ['cluster', 'the directory', 3],
    ['cluster', 'the leases, then a container,', 4],
    ['cluster', 'the leases, which CHECK and STATUS have missed,', 4],
  ] as const)(
    'the addresses of living containers are leased again (%s) once %s was deleted',
    (type, what, next) =>
      withHost(async lab => {
        const ranges = { ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]] };
        const pool = { subnets: [{ ipv4: '10.88.0.0/26', ipv6: 'fd88::/122' }] };
        const ipam = { type, ...(type === 'cluster' ? pool : ranges), dataDir: `${lab.tmp}/leases` };
        const bridge = { type: 'bridge', bridge: 'lost0', isGateway: true, ipam };
        const chain = writeChain(lab, { cniVersion: '1.1.0', name: 'podnet', plugins: [bridge] });
        const [one, two, three] = [await lab.container(), await lab.container(), await lab.container()];
        await chain.add(one);
        await chain.add(two);
        const at = (last: number) => [`10.88.0.${last}`, `fd88::${last}`];
        const leased = async () => (await chain.leases()).map(file => basename(file)).sort();
        await lab.remove(two);
        const dir = `${lab.tmp}/leases/podnet`;
        if (what === 'the directory') rmSync(dir, { recursive: true });
        else if (what.includes('STATUS')) {
          const files = what.startsWith('all')
            ? readdirSync(dir).map(name => join(dir, name))
            : await chain.leases();
          for (const file of files) rmSync(file);
          expect((await chain.run('check', one)).exitCode).toBe(1);
          expect((await chain.run('status', one)).exitCode).toBe(0);
          expect(await leased()).toEqual([]);
        } else {
          for (const file of await chain.leases()) rmSync(file);
          expect((await chain.run('del', two)).exitCode).toBe(0);
          expect(await leased()).toEqual(at(2));
        }
        const { ips } = await chain.add(three);
        expect(ips.map(({ address }: Row) => address.split('/')[0])).toEqual(at(next));
        expect(await leased()).toEqual([...at(2), ...at(next)].sort());
        expect((await chain.run('check', one)).exitCode).toBe(0);
        expect((await chain.run('del', one)).exitCode).toBe(0);
        expect(await leased()).toEqual(at(next));
      }),
  );

  test(
    'free refuses a lease that is only the note of an address of a cluster, whose pool would go on having it',
    onGround(async ({ lab, ipam }) => {
      const shared = { type: 'whereabouts', range: '10.90.0.0/24', dataDir: `${lab.tmp}/shared` };
      writeChain(lab, { cniVersion: '1.1.0', name: 'wide', plugins: [{ type: 'ptp', ipam: shared }] });
      const note = `${lab.tmp}/shared/wide/10.90.0.2`;
      mkdirSync(dirname(note), { recursive: true });
      writeFileSync(note, 'gone\r\neth0');
      const { exitCode, stderr } = await ipam('free', 'wide', '10.90.0.2', '--force');
      expect(exitCode).toBe(1);
      expect(stderr).toContain('a pool of the cluster has it');
      expect(stderr).toContain('catena gc --gone wide');
      expect(existsSync(note)).toBe(true);
    }),
  );

  test(
    'pools lists the pools of a cluster, and the nodes that hold their blocks',
    onGround(async ({ lab, ipam }) => {
      expect(await ipam('pools', 'podnet')).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining("its addresses are this node's own, not a cluster's"),
      });
      const subnets = [{ ipv4: '10.89.0.0/24' }];
      const shared = { type: 'cluster', subnets, blockSize: 16, dataDir: `${lab.tmp}/shared`, node: 'a' };
      const list = { cniVersion: '1.1.0', name: 'shared', plugins: [{ type: 'ptp', ipam: shared }] };
      await writeChain(lab, list).add(await lab.container());
      const { stdout } = await ipam('pools', '--json');
      expect(JSON.parse(stdout)).toMatchObject({
        kind: 'ClusterPoolList',
        items: [
          {
            ...{ network: 'shared', pool: 'default', blockSize: 16, blocks: 16, claimed: 1 },
            nodes: [{ node: 'a', blocks: 1, orphaned: 0, kept: 0 }],
          },
        ],
      });
      expect((await ipam('pools', 'shared', '--output', 'name')).stdout).toBe('default\n');
      const wide = (await ipam('pools', 'shared', '--output', 'wide')).stdout.split('\n');
      expect(wide[0]).toMatch(/^NETWORK +POOL +BLOCKS +BLOCK SIZE +CLAIMED +SHARE +NODES$/);
      expect(wide[1]).toMatch(/^shared +default +16 +16 +1 +6 % +1$/);
      expect(wide[2]).toMatch(/ 1 +a$/);
    }),
  );

  test(
    'refuses invalid arguments',
    onGround(async ({ ipam }) => {
      const bad: [args: string[], exitCode: number, words: string][] = [
        [['rm'], 2, 'there are ls, why, free and pools'],
        [['why', 'podnet'], 2, 'it takes <network> <address>'],
        [['ls', 'a', 'b'], 2, 'it takes [<network>]'],
        [['free', 'podnet', '10.88.0'], 2, 'it is not an address'],
        [['ls', 'podnet'], 1, 'Cannot find leases of network "podnet"'],
        [['ls', 'nowhere', '--data-dir', '/nonexistent'], 1, '"/nonexistent/nowhere" does not exist'],
      ];
      for (const [args, exitCode, words] of bad) {
        expect(await ipam(...args)).toMatchObject({
          exitCode,
          stdout: '',
          stderr: expect.stringContaining(words),
        });
      }
      expect((await ipam('ls', '--data-dir', '/nonexistent')).stdout).toEndWith('0 leases\n');
    }),
  );
});
