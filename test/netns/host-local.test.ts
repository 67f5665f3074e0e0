import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadAbout } from '../../plugins/registry.ts';
import { renderOwner } from '../../src/cni/attachment.ts';
import { loadAbouts } from '../../src/cni/plugin-about.ts';
import { bootOf, noteBoot, thisBoot } from '../../src/ipam/lease-files.ts';
import { rangeUsesOf } from '../../src/ipam/range-use.ts';
import { ALIAS_MAX_BYTES } from '../../src/netlink/rtnl/link.ts';
import { deadline } from '../helpers/deadline.ts';
import { lineReader, within } from '../helpers/lines.ts';
import { type Container, createLab, directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, type PluginCall, type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { startedBy } from '../helpers/script.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';

const STARVED = join(import.meta.dirname, '../fixtures/leases-starved.ts');

describeRoot('host-local', () => {
  let lab: Lab;
  let networks = 0;
  beforeAll(async () => {
    lab = await createLab();
  });
  afterAll(() => lab.close());

  /** A network of its own for every test: name, lease directory, and a way to call the plugin with it. */
  function network(ipam: object, cniVersion: string = LATEST_SPEC_VERSION) {
    const name = `net${++networks}`;
    const dir = join(lab.tmp, name);
    const conf = {
      cniVersion,
      name,
      type: 'bridge',
      ipam: { type: 'host-local', dataDir: lab.tmp, ...ipam },
    };
    const call = (
      command: string,
      id: string,
      more: Partial<PluginCall> & { add?: object; ipam?: object } = {},
    ): Promise<PluginReply> => {
      const { add, ipam: change, ...rest } = more;
      const request = { ...conf, ipam: { ...conf.ipam, ...change }, ...add };
      return lab.plugin('host-local', {
        command,
        conf: request,
        container: { id, path: '/run/netns/unused' },
        ...rest,
      });
    };
    const leases = () => {
      const names = existsSync(dir) ? readdirSync(dir).filter(name => /^[\d a-f:.]+$/.test(name)) : [];
      return Object.fromEntries(names.sort().map(name => [name, readFileSync(join(dir, name), 'utf8')]));
    };
    return { name, dir, call, leases };
  }

  const dual = {
    ranges: [
      [{ subnet: '10.1.0.0/30' }, { subnet: '10.1.1.0/24', rangeStart: '10.1.1.10', gateway: '10.1.1.254' }],
      [{ subnet: 'fd00:1::/64', rangeEnd: 'fd00:1::ff' }],
    ],
    routes: [{ dst: '0.0.0.0/0' }, { dst: 'fd00:9::/48', gw: 'fd00:1::99' }],
  };

  test('[1.1.0] excluded addresses are neither handed out nor granted; lists are handed out in order', async () => {
    const { call, leases } = network({
      ranges: [
        [{ subnet: '10.2.0.0/24', exclude: ['10.2.0.1-10.2.0.19', '10.2.0.21', '10.2.0.128/25'] }],
        [{ subnet: 'fd02::/64', addresses: ['fd02::9', 'fd02::5'] }],
      ],
    });
    const addresses = async (id: string, more = {}) =>
      (await call('ADD', id, more)).result?.ips?.map(({ address }: { address: string }) => address);
    expect(await addresses('one')).toEqual(['10.2.0.20/24', 'fd02::5/64']);
    expect(await addresses('two')).toEqual(['10.2.0.22/24', 'fd02::9/64']);
    const { error } = await call('ADD', 'three');
    expect(error).toMatchObject({ code: 11, msg: expect.stringContaining('2 of 2 addresses in use') });
    await call('DEL', 'two');
    const asking = { add: { runtimeConfig: { ips: ['10.2.0.21'] } } };
    expect((await call('ADD', 'four', asking)).error).toMatchObject({ code: 102 });
    expect(Object.keys(leases())).toEqual(['10.2.0.20', 'fd02::5']);
    // Excluded while it is held: it is released as always.
    const later = { ipam: { ranges: [[{ subnet: '10.2.0.0/24', exclude: ['10.2.0.20'] }]] } };
    expect(await call('CHECK', 'one', later)).toMatchObject({ exitCode: 0 });
    expect(await call('DEL', 'one', later)).toMatchObject({ exitCode: 0 });
    expect(leases()).toEqual({});
  });

  test('ADD allocates one address of each set, DEL releases them', async () => {
    const version = LATEST_SPEC_VERSION;
    const { call, leases, dir } = network(dual, version);
    const resolvConf = join(lab.tmp, 'resolv.conf');
    writeFileSync(resolvConf, 'nameserver 192.0.2.3 # mine\nsearch example.org\n');

    const first = await call('ADD', 'one', { ipam: { resolvConf } });
    expect(first.result).toEqual({
      cniVersion: version,
      ips: [
        { address: '10.1.0.2/30', gateway: '10.1.0.1' },
        { address: 'fd00:1::2/64', gateway: 'fd00:1::1' },
      ],
      routes: dual.routes,
      dns: { nameservers: ['192.0.2.3'], search: ['example.org'] },
    });
    const second = await call('ADD', 'two');
    expect(second.result.ips).toEqual([
      { address: '10.1.1.10/24', gateway: '10.1.1.254' },
      { address: 'fd00:1::3/64', gateway: 'fd00:1::1' },
    ]);
    expect(leases()).toEqual({
      '10.1.0.2': 'one\r\neth0',
      '10.1.1.10': 'two\r\neth0',
      'fd00:1::2': 'one\r\neth0',
      'fd00:1::3': 'two\r\neth0',
    });
    expect(readFileSync(join(dir, 'last_reserved_ip.0'), 'utf8')).toBe('10.1.1.10');
    expect(readFileSync(join(dir, 'last_reserved_ip.1'), 'utf8')).toBe('fd00:1::3');

    expect(await call('CHECK', 'one', { prevResult: first.result })).toMatchObject({ exitCode: 0 });
    expect(await call('STATUS', 'x')).toMatchObject({ exitCode: 0, stdout: '' });
    for (const id of ['one', 'one', 'two', 'never-seen']) {
      expect(await call('DEL', id)).toMatchObject({ exitCode: 0, stdout: '' });
    }
    expect(leases()).toEqual({});
  });

  test('a second ADD of the same attachment is refused and names its address; another interface is accepted', async () => {
    const { call, leases } = network({ subnet: '10.1.0.0/24' });
    await call('ADD', 'one');
    const { error, exitCode } = await call('ADD', 'one');
    expect(exitCode).toBe(1);
    expect(error).toMatchObject({ code: 100, msg: expect.stringContaining('it already holds 10.1.0.2') });
    expect((await call('ADD', 'one', { args: 'IP=10.1.0.77' })).error?.code).toBe(100);
    expect((await call('ADD', 'one', { ifname: 'eth1' })).result.ips[0].address).toBe('10.1.0.3/24');
    await call('DEL', 'one');
    expect(leases()).toEqual({ '10.1.0.3': 'one\r\neth1' });
  });

  test('ADD accepts addresses requested by CNI_ARGS, args and capability', async () => {
    const { call, leases } = network({ ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/64' }]] });
    const add = { args: { cni: { ips: ['fd00::99/64'] } } };
    const byBoth = await call('ADD', 'one', { args: 'IgnoreUnknown=1;K8S_POD_NAME=a;IP=10.1.0.50', add });
    expect(byBoth.result.ips.map((ip: { address: string }) => ip.address)).toEqual([
      '10.1.0.50/24',
      'fd00::99/64',
    ]);
    const capability = { runtimeConfig: { ips: ['10.1.0.60'], ipRanges: [[{ subnet: '10.5.0.0/24' }]] } };
    const byCapability = await call('ADD', 'two', { add: capability });
    expect(byCapability.result.ips.map((ip: { address: string }) => ip.address)).toEqual([
      '10.5.0.2/24',
      '10.1.0.60/24',
      'fd00::2/64',
    ]);
    const taken = await call('ADD', 'three', { args: 'IP=10.1.0.50' });
    expect(taken.error).toMatchObject({
      code: 101,
      msg: expect.stringContaining(
        'requested IP address 10.1.0.50 is not available: it is in use by container "one"',
      ),
    });
    const outside = await call('ADD', 'three', { args: 'IP=10.9.0.50' });
    expect(outside.error).toMatchObject({ code: 102, msg: expect.stringContaining('10.9.0.50') });
    expect((await call('ADD', 'three', { args: 'IP=10.1.0.50;FOO=1' })).error?.code).toBe(4);
    expect(Object.values(leases()).filter(text => text.startsWith('three'))).toEqual([]);
  });

  test('a requested address is taken from a container that is gone, once no ADD of it can be running', async () => {
    const { name, call, dir, leases } = network({ ranges: [[{ subnet: '10.1.0.0/24' }]] });
    const results = join(lab.tmp, 'cache', 'results');
    const env = { CATENA_CNI_CACHE_DIR: join(lab.tmp, 'cache') };
    const ask = (id: string) => call('ADD', id, { args: 'IP=10.1.0.50', env });
    expect((await ask('one')).exitCode).toBe(0);
    expect((await ask('two')).error).toMatchObject({ code: 101 });
    const anHourAgo = Date.now() / 1000 - 3600;
    utimesSync(join(dir, '10.1.0.50'), anHourAgo, anHourAgo);
    mkdirSync(results, { recursive: true });
    // What libcni recorded of a container whose namespace exists, though its address is on no interface, as with a virtual machine.
    const record = join(results, `${name}-one-eth0`);
    writeFileSync(record, JSON.stringify({ kind: 'cniCacheV1', netns: lab.host.path }));
    expect((await ask('two')).error).toMatchObject({ code: 101 });
    writeFileSync(record, JSON.stringify({ kind: 'cniCacheV1', netns: '/run/netns/gone' }));
    // Multus keeps such records in a directory of its own.
    const apart = join(lab.tmp, 'cache', 'multus', 'results');
    mkdirSync(apart, { recursive: true });
    const other = join(apart, `${name}-one-net1`);
    writeFileSync(other, JSON.stringify({ kind: 'cniCacheV1', netns: lab.host.path }));
    expect((await ask('two')).error).toMatchObject({ code: 101 });
    rmSync(other);
    expect((await ask('two')).exitCode).toBe(0);
    expect(leases()['10.1.0.50']).toStartWith('two');
    expect((await call('DEL', 'one')).exitCode).toBe(0);
    expect(leases()['10.1.0.50']).toStartWith('two');
  });

  test('a container that is started again without a DEL gets an address, once it has its former one nowhere', async () => {
    const { name, call, dir, leases } = network({ subnet: '10.1.9.0/24' });
    const env = { CATENA_CNI_CACHE_DIR: join(lab.tmp, 'cache-again') };
    const container = await lab.container();
    const again = (path = container.path) => call('ADD', 'one', { env, container: { id: 'one', path } });
    expect((await again()).exitCode).toBe(0);
    expect((await again()).error).toMatchObject({ code: 100 });
    const anHourAgo = Date.now() / 1000 - 3600;
    utimesSync(join(dir, '10.1.9.2'), anHourAgo, anHourAgo);
    await lab.ip(container, 'addr', 'add', '10.1.9.2/32', 'dev', 'lo');
    expect((await again()).error).toMatchObject({ code: 100 });
    await lab.ip(container, 'addr', 'del', '10.1.9.2/32', 'dev', 'lo');
    // The pair that the plugin before has made for this ADD.
    await addPair(lab, container, `catena:${name}/one/eth0`);
    // A pair to another namespace: a virtual machine in that one may have the address.
    expect((await again('/run/netns/unused')).error).toMatchObject({ code: 100 });
    expect((await again()).result.ips[0].address).toBe('10.1.9.3/24');
    expect(leases()).toEqual({ '10.1.9.3': 'one\r\neth0' });
  });

  // An alias has no room for the long id beside the long name.
  test.each([
    ['net', 'one'],
    ['n'.repeat(190), 'c'.repeat(64)],
  ])(
    'an address is not taken from a container whose pair no program has looked at yet: of %s',
    async (name, id) => {
      await withHost(async lab => {
        const container = await lab.container();
        const ipam = { type: 'host-local', subnet: '10.1.9.0/24', dataDir: lab.tmp };
        const conf = { cniVersion: LATEST_SPEC_VERSION, name, type: 'bridge', ipam };
        const add = (path: string) =>
          lab.plugin('host-local', { command: 'ADD', conf, container: { id, path } });
        expect((await add(container.path)).exitCode).toBe(0);
        const anHourAgo = Date.now() / 1000 - 3600;
        utimesSync(join(lab.tmp, name, '10.1.9.2'), anHourAgo, anHourAgo);
        const alias = renderOwner({ network: name, containerId: id, ifname: 'eth0' }, ALIAS_MAX_BYTES);
        await addPair(lab, container, alias);
        expect((await add('/run/netns/unused')).error).toMatchObject({ code: 100 });
      });
    },
  );

  test.each(['', 'multus', 'catena'])(
    'once all leases were deleted, those of living containers are written again: with records in "%s"',
    async program => {
      const { name, call, leases, dir } = network({ subnet: '10.1.7.0/24' });
      expect((await call('ADD', 'one')).exitCode).toBe(0);
      const container = await lab.container();
      await lab.ip(container, 'addr', 'add', '10.1.7.2/24', 'dev', 'lo');
      const cache = join(lab.tmp, `cache-${name}`);
      const results = join(cache, program, 'results');
      mkdirSync(results, { recursive: true });
      const ids = { containerId: 'one', ifName: 'eth0', networkName: name, netns: container.path };
      const result = { cniVersion: '1.0.0', ips: [{ address: '10.1.7.2/24' }] };
      writeFileSync(
        join(results, `${name}-one-eth0`),
        JSON.stringify({ kind: 'cniCacheV1', ...ids, result }),
      );
      for (const file of readdirSync(dir)) rmSync(join(dir, file));
      const env = { CATENA_CNI_CACHE_DIR: cache };
      expect((await call('ADD', 'two', { env })).result.ips[0].address).toBe('10.1.7.3/24');
      expect(leases()).toEqual({ '10.1.7.2': 'one\r\neth0', '10.1.7.3': 'two\r\neth0' });
    },
  );

  test('once all leases and records were deleted, those of living containers behind a pair are written again', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const ipam = { type: 'host-local', subnet: '10.1.6.0/24', dataDir: `${lab.tmp}/leases` };
      const conf = { cniVersion: LATEST_SPEC_VERSION, name: 'net', type: 'bridge', ipam };
      const added = await lab.plugin('bridge', { command: 'ADD', conf, container });
      expect(added).toMatchObject({ exitCode: 0 });
      rmSync(`${lab.tmp}/leases`, { recursive: true });
      const other = await lab.plugin('bridge', { command: 'ADD', conf, container: await lab.container() });
      expect(other.result.ips[0].address).toBe('10.1.6.3/24');
      expect(readdirSync(`${lab.tmp}/leases/net`)).toContainEqual('10.1.6.2');
      expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({ exitCode: 0 });
      expect(readdirSync(`${lab.tmp}/leases/net`)).not.toContain('10.1.6.2');
    });
  });

  test('an address is not taken from a container that cannot be looked at, for want of descriptors', async () => {
    const { name, call, dir } = network({ ranges: [[{ subnet: '10.1.8.0/24' }]] });
    expect((await call('ADD', 'one', { args: 'IP=10.1.8.50' })).exitCode).toBe(0);
    const anHourAgo = Date.now() / 1000 - 3600;
    utimesSync(join(dir, '10.1.8.50'), anHourAgo, anHourAgo);
    const container = await lab.container();
    const cache = join(lab.tmp, 'starved');
    const record = join(cache, 'results', `${name}-one-eth0`);
    const judge = async () => {
      const argv = ['prlimit', '--nofile=64', process.execPath, STARVED, dir, '10.1.8.50'];
      const env = { CATENA_CNI_CACHE_DIR: cache };
      return (await lab.run(lab.host, argv, { env, timeoutMs: 30_000 })).stdout.split('\n');
    };
    // An interface has the address; then only a record of libcni tells of the container.
    await lab.run(container, ['ip', 'addr', 'add', '10.1.8.50/32', 'dev', 'lo']);
    const byInterface = await judge();
    await lab.run(container, ['ip', 'addr', 'del', '10.1.8.50/32', 'dev', 'lo']);
    mkdirSync(join(cache, 'results'), { recursive: true });
    writeFileSync(record, JSON.stringify({ kind: 'cniCacheV1', netns: container.path }));
    const byRecord = await judge();
    for (const said of [byInterface, byRecord]) {
      expect(said).toContain('dead: ');
      expect(said).not.toContain('dead: 10.1.8.50');
      expect(said).toContainEqual(expect.stringMatching(/^Cannot .*(EMFILE|too many open files)/));
    }
    rmSync(record);
    expect(await judge()).toContain('dead: 10.1.8.50');
  });

  testNeeding(
    'ADD leases as the reference does where a file can have one name only',
    async () => {
      const { call, leases } = network({ ranges: [[{ subnet: '10.1.9.0/24' }]] });
      const binDir = startedBy(
        lab,
        'host-local',
        'strace -f -qq -o /dev/null -e inject=link,linkat:error=EPERM --',
      );
      const added = await call('ADD', 'one', { binDir, cniPath: BIN_DIR });
      expect(added).toMatchObject({ exitCode: 0, result: { ips: [{ address: '10.1.9.2/24' }] } });
      expect(leases()).toEqual({ '10.1.9.2': 'one\r\neth0' });
      expect((await call('CHECK', 'one', { prevResult: added.result })).exitCode).toBe(0);
      expect((await call('ADD', 'one', { binDir, cniPath: BIN_DIR })).error?.code).toBe(100);
      expect((await call('DEL', 'one', { binDir, cniPath: BIN_DIR })).exitCode).toBe(0);
      expect(leases()).toEqual({});
    },
    requires('strace'),
  );

  test.each([
    ['list links', '10.1.8.51'],
    ['list addresses', '10.1.8.52'],
  ])(
    'an address is not taken from a container about which the kernel does not answer: %s',
    async (question, address) => {
      const { call, dir, leases } = network({ ranges: [[{ subnet: '10.1.8.0/24' }]] });
      const wish = { args: `IP=${address}` };
      expect((await call('ADD', 'one', wish)).exitCode).toBe(0);
      const anHourAgo = Date.now() / 1000 - 3600;
      utimesSync(join(dir, address), anHourAgo, anHourAgo);
      const container = await lab.container();
      await lab.run(container, ['ip', 'addr', 'add', `${address}/32`, 'dev', 'lo']);
      const refused = await call('ADD', 'two', { ...wish, env: { CATENA_FAULT: `kernel:${question}` } });
      expect(refused.error?.msg).toContain(question);
      expect(leases()).toEqual({ [address]: 'one\r\neth0' });
      await lab.run(container, ['ip', 'addr', 'del', `${address}/32`, 'dev', 'lo']);
      expect((await call('ADD', 'two', wish)).exitCode).toBe(0);
    },
  );

  test('ADD with a full set names it and leaves no lease of the other sets', async () => {
    const { call, leases } = network({ ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: '10.2.0.0/30' }]] });
    await call('ADD', 'one');
    const before = leases();
    const { error } = await call('ADD', 'two');
    expect(error?.code).toBe(11);
    expect(error?.msg).toContain('range set 1: no IP addresses available in range set: 10.2.0.1-10.2.0.2');
    expect(error?.msg).toContain('(subnet 10.2.0.0/30: 1 of 1 addresses in use, 0 reclaimable)');
    expect(error?.details).toMatch(/"catena ipam ls net\d+ --data-dir .*" shows who holds them/);
    expect(leases()).toEqual(before);
    expect((await call('STATUS', 'x')).error).toMatchObject({
      code: 50,
      msg: expect.stringContaining('1 of 1 addresses in use'),
    });
    await call('DEL', 'one');
    expect((await call('STATUS', 'x')).exitCode).toBe(0);
    expect((await call('ADD', 'two')).exitCode).toBe(0);
  });

  test.each([
    ['a /29', { subnet: '10.5.0.0/29' }, 5],
    ['a /24 from the middle on', { subnet: '10.5.0.0/24', rangeStart: '10.5.0.248' }, 7],
    ['a /29 whose gateway is its last address', { subnet: '10.5.0.0/29', gateway: '10.5.0.6' }, 5],
    [
      'a range whose gateway lies outside',
      { subnet: '10.5.0.0/24', rangeStart: '10.5.0.10', rangeEnd: '10.5.0.13' },
      4,
    ],
    ['an IPv6 /125', { subnet: 'fd00:5::/125' }, 6],
    [
      'a set of two ranges with each gateway in its own',
      { ranges: [[{ subnet: '10.5.0.0/30' }, { subnet: '10.5.1.0/30' }]] },
      2,
    ],
  ] as const)(
    '%s that is full has as many addresses in use as it is said to have',
    async (_, ipam, count) => {
      const { name, call } = network(ipam);
      for (let i = 0; i < count; i++) expect((await call('ADD', `pod${i}`)).exitCode).toBe(0);
      expect((await call('ADD', 'late')).error).toMatchObject({ code: 11 });
      const conf = { ipam: { type: 'host-local', dataDir: lab.tmp, ...ipam } };
      const find = await loadAbouts(loadAbout, ['host-local']);
      const ranges = rangeUsesOf({ name, plugins: [{ conf }] }, find);
      expect(ranges.reduce((sum, { size }) => sum + size, 0)).toBe(count);
      for (const { used, size } of ranges) expect(used).toBe(size);
    },
  );

  test('ADD releases the address if the version cannot express the result', async () => {
    const { call, leases } = network({
      ranges: [[{ subnet: '10.1.0.0/24' }]],
      resolvConf: '/nonexistent/resolv.conf',
    });
    expect((await call('ADD', 'one')).error?.msg).toContain('/nonexistent/resolv.conf');
    expect(leases()).toEqual({});
  });

  const bad: [title: string, ipam: object, code: number, gist: string][] = [
    ['ranges of the wrong shape', { ranges: [{ subnet: '10.1.0.0/24' }] }, 7, 'ranges[0]'],
    [
      'a lease directory that is a file',
      { subnet: '10.1.0.0/24', dataDir: '/etc/hostname' },
      5,
      '/etc/hostname',
    ],
  ];
  for (const [title, ipam, code, gist] of bad) {
    test(`ADD refuses ${title}`, async () => {
      const { error } = await network(ipam).call('ADD', 'one');
      expect(error).toMatchObject({ code, msg: expect.stringContaining(gist) });
    });
  }

  test('DEL works with invalid ranges and before any lease exists', async () => {
    const { call, leases, dir } = network({ subnet: '10.1.0.0/24' });
    expect((await call('DEL', 'one')).exitCode).toBe(0);
    expect(existsSync(dir)).toBe(false);
    await call('ADD', 'one');
    expect((await call('DEL', 'one', { ipam: { subnet: '10.1.0.1/31' } })).exitCode).toBe(0);
    await call('ADD', 'one');
    const shapeless = { subnet: 5, ranges: { subnet: '10.1.0.0/24' }, routes: 'none' };
    expect((await call('ADD', 'two', { ipam: shapeless })).error?.code).toBe(7);
    expect((await call('DEL', 'one', { ipam: shapeless })).exitCode).toBe(0);
    expect(leases()).toEqual({});
  });

  testNeeding(
    'CHECK finds and DEL releases both families of a lease of the reference, one of them leased before',
    async () => {
      const ranges = [[{ subnet: '10.1.0.0/29' }], [{ subnet: 'fd00:1::/64' }]];
      const { call, leases } = network({ ranges }, '1.0.0');
      const reference = { binDir: REFERENCE_BIN_DIR };
      // Ours meets the first address, and does not see that its lease becomes another one.
      expect((await call('ADD', 'first')).exitCode).toBe(0);
      expect((await call('DEL', 'first', reference)).exitCode).toBe(0);
      const ids = ['a', 'b', 'c', 'd', 'wrapped'];
      for (const id of ids) expect((await call('ADD', id, reference)).exitCode).toBe(0);
      const held = Object.entries(leases()).filter(([, owner]) => owner === 'wrapped\r\neth0');
      expect(held.map(([address]) => address)).toEqual(['10.1.0.2', 'fd00:1::7']);

      const prevResult = {
        cniVersion: '1.0.0',
        ips: [{ address: '10.1.0.2/29' }, { address: 'fd00:1::7/64' }],
      };
      expect((await call('CHECK', 'wrapped', { prevResult })).error).toBeUndefined();
      expect((await call('DEL', 'wrapped')).exitCode).toBe(0);
      expect(Object.values(leases())).not.toContain('wrapped\r\neth0');
      for (const id of ids) expect((await call('DEL', id)).exitCode).toBe(0);
      expect(leases()).toEqual({});
    },
    requiresReference('host-local'),
  );

  test('CHECK reports a lease that is missing or belongs to another attachment', async () => {
    const { call, dir } = network({ subnet: '10.1.0.0/24' });
    const { result } = await call('ADD', 'one');
    const check = () => call('CHECK', 'one', { prevResult: result });
    expect((await check()).exitCode).toBe(0);
    const elsewhere = { ...result, ips: [...result.ips, { address: '192.0.2.1/24' }] };
    expect((await call('CHECK', 'one', { prevResult: elsewhere })).exitCode).toBe(0);
    writeFileSync(join(dir, '10.1.0.2'), 'two\r\neth0');
    writeFileSync(join(dir, '10.1.0.9'), 'one\r\neth0');
    expect((await check()).error?.msg).toContain(
      '10.1.0.2 of container "one", interface "eth0": it holds 10.1.0.9',
    );
    rmSync(join(dir, '10.1.0.9'));
    expect((await check()).error?.msg).toContain('Cannot find a lease of container "one"');
  });

  test('GC releases unused and incomplete leases, and keeps pointers, lock and foreign files', async () => {
    const { call, leases, dir } = network({ subnet: '10.1.0.0/24' });
    for (const id of ['one', 'two', 'three']) await call('ADD', id);
    for (const [name, text] of [
      ['10.1.0.77', ''],
      ['10.1.0.78', 'old'],
      ['10.1.0.79', 'older'],
      ['10.1.0.80', '{not ours}'],
    ]) {
      writeFileSync(join(dir, String(name)), String(text));
      // A young lease without a note may be of an ADD of the reference in progress.
      const before = Date.now() / 1000 - 60;
      utimesSync(join(dir, String(name)), before, before);
    }
    writeFileSync(join(dir, '10.1.0.81'), 'young');
    const valid = [
      { containerID: 'one', ifname: 'eth0' },
      { containerID: 'two', ifname: 'eth1' },
      { containerID: 'old', ifname: 'eth0' },
    ];
    const collect = () => call('GC', 'x', { add: { 'cni.dev/valid-attachments': valid } });
    expect(await collect()).toMatchObject({ exitCode: 0, stdout: '' });
    expect(await collect()).toMatchObject({ exitCode: 0, stdout: '' });
    expect(leases()).toEqual({
      '10.1.0.2': 'one\r\neth0',
      '10.1.0.78': 'old',
      '10.1.0.80': '{not ours}',
      '10.1.0.81': 'young',
    });
    expect(readdirSync(dir)).toContain('last_reserved_ip.0');
    expect(readdirSync(dir)).toContain('lock');
    expect((await call('GC', 'x')).exitCode).toBe(0);
    expect(Object.keys(leases())).toHaveLength(4);
  });

  test('GC keeps the lease of an address that an interface still has, and says so', async () => {
    const { call, leases } = network({ subnet: '10.1.7.0/24' });
    for (const id of ['one', 'two']) await call('ADD', id);
    const container = await lab.container();
    await lab.run(container, ['ip', 'addr', 'add', '10.1.7.2/32', 'dev', 'lo']);
    const reply = await call('GC', 'x', { add: { 'cni.dev/valid-attachments': [] } });
    expect(reply).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining('Keeping the lease of 10.1.7.2'),
    });
    expect(leases()).toEqual({ '10.1.7.2': 'one\r\neth0' });
  });

  test('ADD leaves no file if the disk has no space for one of them', async () => {
    const ranges = [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/64' }]];
    const dataDir = join(lab.tmp, 'small');
    mkdirSync(dataDir);
    const conf = {
      cniVersion: '1.0.0',
      name: 'tight',
      type: 'x',
      ipam: { type: 'host-local', ranges, dataDir },
    };
    // The directory has this many files at most; each step of ADD fails once.
    const script = `mount -t tmpfs -o nr_inodes=$FILES none ${dataDir} && ${BIN_DIR}/host-local > /dev/null
      echo "exit $?"; cd ${dataDir} && find . -type f`;
    const outcomes: string[] = [];
    for (let files = 3; files < 14; files++) {
      const { stdout } = await lab.run(lab.host, ['unshare', '--mount', 'sh', '-c', script], {
        stdin: JSON.stringify(conf),
        env: {
          FILES: String(files),
          CNI_COMMAND: 'ADD',
          CNI_CONTAINERID: 'one',
          CNI_NETNS: '/x',
          CNI_IFNAME: 'eth0',
          CNI_PATH: BIN_DIR,
          ...directories(lab.tmp),
        },
      });
      const ok = stdout.includes('exit 0');
      const kept = stdout.split('\n').filter(line => /tight\/([\da-f]+[.:]|last)/.test(line));
      expect([files, ok, kept.length]).toEqual([files, ok, ok ? 4 : 0]);
      outcomes.push(ok ? 'done' : 'failed');
    }
    expect(new Set(outcomes).size).toBe(2);
  });

  test('STATUS warns on standard error when a set is nearly full', async () => {
    const { call } = network({ subnet: '10.1.0.0/28' });
    for (let i = 0; i < 11; i++) await call('ADD', `c${i}`);
    expect(await call('STATUS', 'x')).toMatchObject({ exitCode: 0, stderr: '' });
    await call('ADD', 'c11');
    const { exitCode, stdout, stderr } = await call('STATUS', 'x');
    expect([exitCode, stdout]).toEqual([0, '']);
    expect(stderr).toContain('Range set 0 is nearly full: 12 of 13 addresses in use');
  });

  test('ADD releases leases of an earlier boot, unless that is turned off', async () => {
    const { call, leases, dir } = network({ subnet: '10.1.0.0/29' });
    for (const id of ['one', 'two', 'three', 'four', 'five']) await call('ADD', id);
    restart(dir, '10.1.0.2', '10.1.0.4');
    const kept = await call('ADD', 'six', { ipam: { reclaimAfterReboot: false } });
    expect(kept.error).toMatchObject({
      code: 11,
      msg: expect.stringContaining('5 of 5 addresses in use, 2 reclaimable'),
      details: expect.stringContaining('"reclaimAfterReboot": false'),
    });
    // STATUS as well: a runtime that it told "full" would never ask for an address.
    expect((await call('STATUS', 'x', { ipam: { reclaimAfterReboot: false } })).error?.code).toBe(50);
    expect((await call('STATUS', 'x')).exitCode).toBe(0);
    expect((await call('ADD', 'six')).result.ips[0].address).toBe('10.1.0.2/29');
    // An attachment of the same name, made again after the restart, is no second one.
    expect((await call('ADD', 'three')).result.ips[0].address).toBe('10.1.0.4/29');
    expect(Object.keys(leases())).toHaveLength(5);
  });

  test('the process that keeps the lock is named, and STATUS waits only briefly', async () => {
    const { call, dir } = network({ subnet: '10.1.0.0/29' });
    await call('ADD', 'one');
    const held = ['sh', '-c', 'echo held; exec sleep 60'];
    const holder = lab.start(lab.host, ['flock', '--no-fork', join(dir, 'lock'), ...held]);
    await within(deadline(20_000), 'the lock', lineReader(holder.stdout)());
    const { error } = await call('STATUS', 'x');
    holder.kill('SIGKILL');
    await holder.exited;
    expect(error).toMatchObject({
      code: 50,
      msg: expect.stringMatching(/process \d+ \((flock|sh|sleep)\) holds it/),
    });
  });

  describe('host-local next to the reference', () => {
    const reference = requiresReference('host-local');
    const binDirs = [BIN_DIR, REFERENCE_BIN_DIR];

    testNeeding(
      'each releases and checks leases of the other',
      async () => {
        const { call, leases } = network(dual, '1.0.0');
        for (const [mine, other] of [binDirs, binDirs.toReversed()]) {
          const { result } = await call('ADD', 'one', { binDir: String(mine) });
          expect((await call('CHECK', 'one', { binDir: String(other), prevResult: result })).exitCode).toBe(
            0,
          );
          expect((await call('ADD', 'one', { binDir: String(other) })).exitCode).toBe(1);
          expect((await call('DEL', 'one', { binDir: String(other) })).exitCode).toBe(0);
          expect(leases()).toEqual({});
        }
      },
      reference,
    );

    testNeeding(
      'leases of the reference from this boot are never released as older, not even with an old name',
      async () => {
        const { call, leases, dir } = network({ subnet: '10.1.0.0/29' }, '1.0.0');
        const byReference = { binDir: REFERENCE_BIN_DIR };
        await call('ADD', 'one');
        await call('ADD', 'two', byReference);
        restart(dir, '10.1.0.2');
        // The same container gets the same address again, from the reference.
        await call('DEL', 'one', byReference);
        const again = await call('ADD', 'one', { ...byReference, args: 'IP=10.1.0.2' });
        expect(again.result.ips[0].address).toBe('10.1.0.2/29');
        // Whatever the clock says of it.
        for (const name of ['10.1.0.2', '10.1.0.3', '.']) utimesSync(join(dir, name), 1, 1);
        for (const id of ['three', 'four', 'five']) expect((await call('ADD', id)).exitCode).toBe(0);
        expect((await call('ADD', 'six')).error?.code).toBe(11);
        expect(leases()).toMatchObject({ '10.1.0.2': 'one\r\neth0', '10.1.0.3': 'two\r\neth0' });
        // It was met in this boot, so the next one knows it for old.
        restart(dir, '10.1.0.3');
        expect((await call('ADD', 'six')).result.ips[0].address).toBe('10.1.0.3/29');
      },
      reference,
    );

    testNeeding(
      'both at once never allocate one address twice',
      async () => {
        const { call, leases } = network(
          { ranges: [[{ subnet: '10.1.0.0/24' }], [{ subnet: 'fd00::/64' }]] },
          '1.0.0',
        );
        const ids = Array.from({ length: 96 }, (_, i) => `c${i}`);
        const replies = await eightAtATime(ids, (id, i) =>
          call('ADD', id, { binDir: String(binDirs[i % 2]) }),
        );
        expect(replies.filter(reply => reply.exitCode !== 0)).toEqual([]);
        const addresses = replies.flatMap(reply =>
          reply.result.ips.map((ip: { address: string }) => ip.address),
        );
        expect(new Set(addresses).size).toBe(ids.length * 2);
        expect(Object.keys(leases())).toHaveLength(ids.length * 2);
        // Each deletes what the other added, while both keep adding.
        const mixed = await eightAtATime(ids, async (id, i) => {
          const del = await call('DEL', id, { binDir: String(binDirs[(i + 1) % 2]) });
          const add = await call('ADD', `again-${id}`, { binDir: String(binDirs[(i >> 1) % 2]) });
          return [del, add];
        });
        expect(mixed.flat().filter(reply => reply.exitCode !== 0)).toEqual([]);
        const again = mixed.flatMap(([, add]) =>
          add?.result.ips.map((ip: { address: string }) => ip.address),
        );
        expect(new Set(again).size).toBe(ids.length * 2);
        expect(Object.values(leases()).every(text => text.startsWith('again-'))).toBe(true);
      },
      reference,
    );
  });
});

/** Makes a pair to a container, as the plugin does that calls host-local; its end on the host has that alias. */
async function addPair(lab: Lab, container: Container, alias: string): Promise<void> {
  await lab.ip(lab.host, ...`link add veth9 type veth peer name eth9 netns ${container.name}`.split(' '));
  await lab.ip(lab.host, 'link', 'set', 'veth9', 'alias', alias);
}

/** Leaves things as a restart of the machine would: the leases carry the note of a boot that is over. */
function restart(dir: string, ...addresses: string[]): void {
  for (const address of addresses) {
    const file = join(dir, address);
    if (bootOf(file) !== 'this') throw new Error(`"${file}" carries no note of this boot`);
    noteBoot(file, { ...thisBoot(), bootId: '00000000-0000-4000-8000-000000000000' });
  }
  for (const name of readdirSync(dir)) if (name.startsWith('.catena-')) rmSync(join(dir, name));
}

/** Runs the work for every item, eight of them at any time, as a busy kubelet would. */
async function eightAtATime<I, O>(
  items: readonly I[],
  work: (item: I, i: number) => Promise<O>,
): Promise<O[]> {
  const results: O[] = [];
  const queue = [...items.entries()];
  const worker = async () => {
    for (let next = queue.shift(); next; next = queue.shift())
      results[next[0]] = await work(next[1], next[0]);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  return results;
}
