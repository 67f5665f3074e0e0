// What does the cluster plugin do on a host without a cluster, and below a bridge?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Container, createLab, type Lab, type Row } from '../helpers/netns.ts';
import type { PluginCall, PluginReply } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

describeRoot('cluster', () => {
  let lab: Lab;
  let networks = 0;
  beforeAll(async () => {
    lab = await createLab();
  });
  afterAll(() => lab.close());

  function network(ipam: object, cniVersion = '1.1.0') {
    const name = `net${++networks}`;
    // A store of its own for each pool: pools of one store must not overlap.
    const dataDir = join(lab.tmp, 'pool' in ipam ? String(ipam.pool) : `pool-of-${name}`);
    const conf = {
      cniVersion,
      name,
      type: 'bridge',
      ipam: { type: 'cluster', dataDir, pool: name, ...ipam },
    };
    const call = (command: string, id = 'one', more: Partial<PluginCall> = {}): Promise<PluginReply> =>
      lab.plugin('cluster', { command, conf, container: { id, path: '/run/netns/unused' }, ...more });
    const leases = () =>
      readdirSync(join(dataDir, name))
        .filter(file => /^[\da-f.:]+$/.test(file))
        .sort();
    return { name, conf, call, leases, dir: join(dataDir, name) };
  }

  const dual = {
    subnets: [{ ipv4: '10.6.0.0/24', ipv6: 'fd06::/120' }],
    blockSize: 8,
    exclude: ['10.6.0.0/25'],
  };

  test('ADD leases an address of each family, CHECK finds it, DEL releases it', async () => {
    const version = LATEST_SPEC_VERSION;
    const { call, leases } = network(dual, version);
    const { exitCode, result } = await call('ADD');
    expect(exitCode).toBe(0);
    const [four = '', six = ''] = leases();
    expect(four).toMatch(/^10\.6\.0\.(12[89]|1[3-9]\d|2\d\d)$/);
    expect(six).toStartWith('fd06::');
    expect(JSON.stringify(result)).toContain(`${four}/29`);
    expect(JSON.stringify(result)).toContain(`${six}/125`);
    expect(await call('CHECK', 'one', { prevResult: result })).toMatchObject({ exitCode: 0 });
    expect((await call('ADD')).error).toMatchObject({ code: 100 });
    expect(await call('DEL')).toMatchObject({ exitCode: 0 });
    expect(await call('DEL')).toMatchObject({ exitCode: 0 });
    expect(leases()).toEqual([]);
    expect((await call('CHECK', 'one', { prevResult: result })).error).toMatchObject({ code: 999 });
  });

  test('a container that is started again without a DEL gets an address, once it has its former one nowhere', async () => {
    const { call, leases, dir } = network({ subnets: [{ ipv4: '10.3.0.0/24' }] });
    const again = () => call('ADD', 'one', { env: { CATENA_CNI_CACHE_DIR: join(lab.tmp, 'cache-again') } });
    expect((await again()).exitCode).toBe(0);
    const [former = ''] = leases();
    const anHourAgo = Date.now() / 1000 - 3600;
    utimesSync(join(dir, former), anHourAgo, anHourAgo);
    const container = await lab.container();
    await lab.ip(container, 'addr', 'add', `${former}/32`, 'dev', 'lo');
    expect((await again()).error).toMatchObject({ code: 100 });
    await lab.ip(container, 'addr', 'del', `${former}/32`, 'dev', 'lo');
    const { result } = await again();
    expect(leases()).toEqual([result.ips[0].address.split('/')[0]]);
  });

  test.each([
    [2, '10.5.0.0/31', 'fd05::/127', ['10.5.0.0/31', '10.5.0.1/31'], ['fd05::/127', 'fd05::1/127']],
    [1, '10.4.0.5/32', 'fd04::5/128', ['10.4.0.5/32'], ['fd04::5/128']],
  ] as const)(
    'flat pools of %i address for each family are handed out whole, to pods that reach each other (RFC 3021, RFC 6164)',
    async (blockSize, ipv4, ipv6, fours, sixes) => {
      const { conf } = network({ layout: 'flat', blockSize, subnets: [{ ipv4, ipv6 }] });
      const bridge = { ...conf, bridge: `flat${blockSize}` };
      const pods = await Promise.all(fours.map(() => lab.container()));
      const own = new Map<Container, string[]>();
      for (const container of pods) {
        const added = await lab.plugin('bridge', { command: 'ADD', conf: bridge, container });
        expect(added).toMatchObject({ exitCode: 0, stderr: '' });
        own.set(
          container,
          added.result.ips.map(({ address }: Row) => address),
        );
      }
      expect([...own.values()].flat().sort()).toEqual([...fours, ...sixes].sort());
      for (const from of pods)
        for (const to of pods.filter(one => one !== from))
          for (const address of own.get(to) ?? [])
            expect(await ping(lab, from, address.split('/')[0] ?? '')).toBe(true);
      const more = await lab.plugin('bridge', {
        command: 'ADD',
        conf: bridge,
        container: await lab.container(),
      });
      expect(more.error).toMatchObject({ code: 11 });
    },
  );

  test('[1.1.0] networks of one pool hold blocks of their own; a full pool says so, to STATUS as well', async () => {
    const ipam = { subnets: [{ ipv4: '10.7.0.0/28' }], blockSize: 8, pool: 'shared' };
    const [first, second, third] = [network(ipam), network(ipam), network(ipam)];
    const one = await first.call('ADD');
    const two = await second.call('ADD');
    const gateways = [one, two].map(({ result }) => result?.ips?.[0]?.gateway).sort();
    expect(gateways).toEqual(['10.7.0.1', '10.7.0.9']);
    expect((await third.call('ADD')).error).toMatchObject({
      code: 11,
      msg: expect.stringContaining('no IP addresses available: nodes hold 2 of its 2 blocks'),
    });
    expect((await third.call('STATUS')).error).toMatchObject({ code: 50 });
    expect(await first.call('STATUS')).toMatchObject({ exitCode: 0 });
    for (let i = 0; i < 4; i++) expect(await first.call('ADD', `c${i}`)).toMatchObject({ exitCode: 0 });
    expect((await first.call('ADD', 'c9')).error).toMatchObject({ code: 11 });
  });

  test('[1.1.0] GC releases what is not listed, and gives back blocks that are empty', async () => {
    const { call, leases, conf, dir } = network({ ...dual, coolDown: 0, lowWater: 1 });
    for (let i = 0; i < 8; i++) expect(await call('ADD', `c${i}`)).toMatchObject({ exitCode: 0 });
    const blocks = () => JSON.parse(readFileSync(join(dir, '.catena-blocks'), 'utf8')).blocks.length;
    expect(blocks()).toBe(2);
    // GC leaves alone what was begun less than 10 ms before it, since the clock of files is up to that much behind.
    const added = Date.now();
    await until(() => Date.now() > added + 10);
    const gc = { ...conf, 'cni.dev/valid-attachments': [{ containerID: 'c0', ifname: 'eth0' }] };
    expect(await call('GC', '', { conf: gc })).toMatchObject({ exitCode: 0 });
    expect(leases()).toHaveLength(2);
    expect(blocks()).toBe(1);
  });

  test('[1.1.0] after a boot, STATUS and ADD count on the blocks that are still those of this node', async () => {
    const ipam = { subnets: [{ ipv4: '10.68.0.0/29' }], blockSize: 8, pool: 'small' };
    const [one, two] = [network(ipam), network(ipam)];
    expect(await one.call('ADD')).toMatchObject({ exitCode: 0 });
    const second = { env: { CATENA_BOOT_ID: 'second' } };
    expect(await one.call('STATUS', '', second)).toMatchObject({ exitCode: 0 });
    expect(await one.call('ADD', 'two', second)).toMatchObject({ exitCode: 0 });
    rmSync(join(one.dir, '..', '.catena-pools', 'blocks', 'small-10.68.0.0'));
    expect(await two.call('ADD')).toMatchObject({ exitCode: 0 });
    const third = { env: { CATENA_BOOT_ID: 'third' } };
    expect((await one.call('STATUS', '', third)).error).toMatchObject({ code: 50 });
    expect((await one.call('ADD', 'three', third)).error).toMatchObject({ code: 11 });
  });

  test('[1.1.0] DEL releases a single address, also if neither its store nor a note for the daemon can be written', async () => {
    const { call, conf, leases } = network({
      layout: 'flat',
      subnets: [{ ipv4: '10.70.0.0/28' }],
      blockSize: 1,
    });
    expect(await call('ADD')).toMatchObject({ exitCode: 0 });
    const blocked = join(lab.tmp, 'blocked');
    mkdirSync(blocked);
    writeFileSync(join(blocked, 'upkeep'), '');
    const away = { ...conf, ipam: { ...conf.ipam, kubeconfig: '/nowhere' } };
    const deleted = await call('DEL', 'one', { conf: away, env: { CATENA_STATE_DIR: blocked } });
    expect(deleted).toMatchObject({ exitCode: 0 });
    expect(deleted.stderr).toContain('Cannot ask the daemon to look after blocks at once');
    expect(leases()).toEqual([]);
  });

  test.each(['configuration', 'pool, once it was looked at'])(
    '[1.1.0] what the %s excludes later is not handed out of a block that the node holds, nor a new gateway',
    async place => {
      const ipam = {
        layout: 'flat',
        subnets: [{ ipv4: '10.69.0.0/28' }],
        blockSize: 16,
        lowWater: 0,
        coolDown: 0,
      };
      const { call, leases, conf, dir } = network(ipam);
      const first = await call('ADD', 'c1');
      const [given = ''] = leases();
      expect(first.result.ips[0]).toEqual({ address: `${given}/28` });
      const later = {
        ...ipam,
        exclude: ['10.69.0.4', '10.69.0.8-10.69.0.11', given],
        gateways: ['10.69.0.2'],
      };
      const changed = { ...conf, ipam: { ...conf.ipam, ...later } };
      if (place !== 'configuration') {
        const gc = { ...changed, 'cni.dev/valid-attachments': [{ containerID: 'c1', ifname: 'eth0' }] };
        expect(await call('GC', '', { conf: gc })).toMatchObject({ exitCode: 0 });
        const { terms } = JSON.parse(readFileSync(join(dir, '.catena-blocks'), 'utf8'));
        const exclude = ['10.69.0.4-10.69.0.4', '10.69.0.8-10.69.0.11', `${given}-${given}`];
        expect(terms).toEqual({
          [conf.name]: {
            ...{ layout: 'flat', gateways: ['10.69.0.2'], subnets: ['10.69.0.0/28'] },
            exclude: expect.arrayContaining(exclude),
          },
        });
      }
      const excluded = [2, 4, 8, 9, 10, 11].map(last => `10.69.0.${last}`);
      const free = 14 - new Set([...excluded, given]).size;
      for (let i = 0; i < free; i++) {
        const { result } = await call('ADD', `d${i}`, { conf: changed });
        expect(result.ips[0].gateway).toBe('10.69.0.2');
      }
      expect((await call('ADD', 'none', { conf: changed })).error).toMatchObject({ code: 11 });
      expect((await call('STATUS', '', { conf: changed })).error).toMatchObject({ code: 50 });
      expect(leases().filter(one => one !== given && excluded.includes(one))).toEqual([]);
      // Who has one keeps it, and nothing of the block goes back before.
      expect(await call('CHECK', 'c1', { prevResult: first.result })).toMatchObject({ exitCode: 0 });
      for (let i = 0; i < free; i++) await call('DEL', `d${i}`, { conf: changed });
      expect(readdirSync(join(dir, '..', '.catena-pools', 'blocks'))).toHaveLength(1);
      await call('DEL', 'c1', { conf: changed });
      expect(leases()).toEqual([]);
    },
  );

  test('[1.1.0] a pool of blocks refuses a request for an address, also of a block that the node holds', async () => {
    const { call, conf, leases } = network({ subnets: [{ ipv4: '10.71.0.0/28' }], blockSize: 16 });
    const wanted = { conf: { ...conf, runtimeConfig: { ips: ['10.71.0.9'] } } };
    const refused = { code: 7, msg: expect.stringContaining('its blocks have 16 addresses') };
    expect((await call('ADD', 'first', wanted)).error).toMatchObject(refused);
    expect(await call('ADD', 'other')).toMatchObject({ exitCode: 0 });
    expect((await call('ADD', 'second', wanted)).error).toMatchObject(refused);
    expect(leases()).toHaveLength(1);
  });

  test.each(['configuration', 'pool, once it was looked at'])(
    '[1.1.0] a subnet that the %s no longer has is not handed out of a block that the node holds, which goes back when it is empty',
    async place => {
      const ipam = { subnets: [{ ipv4: '10.72.0.0/28' }], blockSize: 8, lowWater: 0, coolDown: 0 };
      const { call, conf, dir } = network(ipam);
      const first = await call('ADD', 'c1');
      const changed = { ...conf, ipam: { ...conf.ipam, subnets: [{ ipv4: '10.73.0.0/28' }] } };
      const kept = (...ids: string[]) => ({
        conf: {
          ...changed,
          'cni.dev/valid-attachments': ids.map(containerID => ({ containerID, ifname: 'eth0' })),
        },
      });
      if (place !== 'configuration') await call('GC', '', kept('c1'));
      const { result } = await call('ADD', 'c2', { conf: changed });
      expect(result.ips[0].address).toStartWith('10.73.0.');
      expect(await call('CHECK', 'c1', { conf: changed, prevResult: first.result })).toMatchObject({
        exitCode: 0,
      });
      expect(await call('DEL', 'c1', { conf: changed })).toMatchObject({ exitCode: 0 });
      expect(await call('GC', '', kept('c2'))).toMatchObject({ exitCode: 0 });
      const blocks = readdirSync(join(dir, '..', '.catena-pools', 'blocks'));
      expect(blocks).toEqual([expect.stringMatching(/-10\.73\.0\.[08]$/)]);
    },
  );

  test('[1.1.0] CHECK misses the lease of one of two addresses', async () => {
    const { call, dir, leases } = network(dual);
    const { result } = await call('ADD');
    rmSync(join(dir, leases()[1] ?? ''));
    const { error } = await call('CHECK', 'one', { prevResult: result });
    expect(error?.msg).toContain('Cannot confirm address fd06::');
  });

  test('[1.1.0] a list of blocks that cannot be read is made again from the store', async () => {
    const { call, dir, leases } = network(dual);
    await call('ADD');
    const before = leases();
    writeFileSync(join(dir, '.catena-blocks'), '{"blocks": 5}');
    expect(await call('ADD', 'two')).toMatchObject({ exitCode: 0 });
    // No address of the first is given away.
    expect(leases()).toEqual(expect.arrayContaining(before));
    expect(leases()).toHaveLength(4);
    for (const id of ['one', 'two']) expect(await call('DEL', id)).toMatchObject({ exitCode: 0 });
    expect(leases()).toEqual([]);
  });

  test('[1.1.0] CHECK says that the pool has given a block to another node', async () => {
    const { call, dir } = network(dual);
    const { result } = await call('ADD');
    const held = JSON.parse(readFileSync(join(dir, '.catena-blocks'), 'utf8'));
    for (const block of held.blocks) block.state = 'lost';
    writeFileSync(join(dir, '.catena-blocks'), JSON.stringify(held));
    const { error } = await call('CHECK', 'one', { prevResult: result });
    expect(error?.msg).toContain('the pool has given its block to another node');
  });

  test('[1.1.0] the return of a block that was interrupted is completed before the next claim', async () => {
    const { call, dir } = network(dual);
    await call('ADD');
    await call('DEL');
    const file = join(dir, '.catena-blocks');
    const states = () => JSON.parse(readFileSync(file, 'utf8')).blocks.map(({ state }: Row) => state);
    const before = states();
    writeFileSync(file, readFileSync(file, 'utf8').replaceAll('"held"', '"returning"'));
    expect(await call('ADD', 'two')).toMatchObject({ exitCode: 0 });
    expect([before, states()]).toEqual([['held'], ['held']]);
  });

  test('[1.1.0] a pod gets an address of the pool of its namespace, or of the one that it names', async () => {
    const pools = [
      { pool: 'public', namespaces: ['web-*'], subnets: [{ ipv4: '10.61.0.0/24' }], blockSize: 8 },
      { pool: 'lab', subnets: [{ ipv4: '10.62.0.0/24' }], blockSize: 8 },
    ];
    const { call, conf } = network({ subnets: [{ ipv4: '10.60.0.0/24' }], blockSize: 8, pools });
    const of = async (id: string, namespace: string, pool?: string) => {
      const annotations = pool === undefined ? {} : { 'catena.cni.cncf.io/pool': pool };
      const { result, error } = await call('ADD', id, {
        args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${id}`,
        conf: { ...conf, runtimeConfig: { 'io.kubernetes.cri.pod-annotations': annotations } },
      });
      return error?.msg ?? result?.ips?.[0]?.address.split('.').slice(0, 2).join('.');
    };
    expect(await of('a', 'default')).toBe('10.60');
    expect(await of('b', 'web-shop')).toBe('10.61');
    expect(await of('c', 'web-shop', 'lab')).toBe('10.62');
    expect(await of('d', 'default', 'other')).toContain('Cannot use pool "other"');
    for (const id of ['a', 'b', 'c']) expect(await call('DEL', id)).toMatchObject({ exitCode: 0 });
  });

  test('[1.1.0] a claim and the pods of a StatefulSet keep their single addresses', async () => {
    const lan = {
      subnets: [{ ipv4: '10.63.0.0/28' }],
      blockSize: 1,
      layout: 'flat',
      keep: 600,
      pool: 'kept',
    };
    const [one, two] = [network(lan), network(lan)];
    const claim = { namespace: 'ns', name: 'vm', uid: 'u1' };
    const claimed = ({ conf }: typeof one) => ({
      conf: { ...conf, args: { cni: { 'catena.cni.cncf.io/claim': claim } } },
    });
    const ordinal = { args: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0' };
    const addressOf = ({ result }: PluginReply) => result?.ips?.[0]?.address;
    const [vm, web] = [await one.call('ADD', 'vm-1', claimed(one)), await one.call('ADD', 'web-1', ordinal)];
    expect(addressOf(vm)).toMatch(/^10\.63\.0\.\d+\/28$/);
    expect((await two.call('ADD', 'vm-2', claimed(two))).error).toMatchObject({ code: 11 });
    for (const id of ['vm-1', 'web-1']) expect(await one.call('DEL', id)).toMatchObject({ exitCode: 0 });
    // Another network of the pool stands for another node.
    expect(addressOf(await two.call('ADD', 'vm-2', claimed(two)))).toBe(addressOf(vm) ?? '');
    expect(addressOf(await one.call('ADD', 'web-2', ordinal))).toBe(addressOf(web) ?? '');
    const taken = [addressOf(vm), addressOf(web)];
    const free = Array.from({ length: 13 }, (_, i) => `10.63.0.${i + 2}/28`).filter(
      ip => !taken.includes(ip),
    );
    const wanted = { conf: { ...one.conf, runtimeConfig: { ips: free.slice(0, 1) } } };
    expect(addressOf(await one.call('ADD', 'asked', wanted))).toBe(free[0] ?? '');
    expect((await one.call('ADD', 'asked-again', wanted)).error).toMatchObject({ code: 11 });
  });

  test('[1.1.0] the pod to which a machine moves has the address of its claim as well, and no third one', async () => {
    const lan = { subnets: [{ ipv4: '10.64.0.0/28' }], blockSize: 1, layout: 'flat', pool: 'moved' };
    // Other networks of the pool stand for other nodes.
    const [one, two, three] = [network(lan), network(lan), network(lan)];
    const add = (node: typeof one, id: string, joins?: true) => {
      const claim = { namespace: 'ns', name: 'vm', uid: 'u1', ...(joins && { joins }) };
      return node.call('ADD', id, {
        conf: { ...node.conf, args: { cni: { 'catena.cni.cncf.io/claim': claim } } },
      });
    };
    const addressOf = ({ result }: PluginReply) => result?.ips?.[0]?.address;
    const [source, target] = [await add(one, 'source'), await add(two, 'target', true)];
    expect(addressOf(source)).toMatch(/^10\.64\.0\.\d+\/28$/);
    expect(addressOf(target)).toBe(addressOf(source) ?? '');
    const check = () => two.call('CHECK', 'target', { prevResult: target.result });
    expect(await check()).toMatchObject({ exitCode: 0 });
    expect((await add(three, 'third', true)).error).toMatchObject({ code: 11 });
    expect((await add(two, 'target-2', true)).error).toMatchObject({ code: 11 });
    // One that fails leaves, and another may come.
    expect(await two.call('DEL', 'target')).toMatchObject({ exitCode: 0 });
    expect((await add(two, 'other')).error).toMatchObject({ code: 11 });
    const next = await add(three, 'third', true);
    expect(addressOf(next)).toBe(addressOf(source) ?? '');
    expect(await one.call('DEL', 'source')).toMatchObject({ exitCode: 0 });
    expect(await three.call('CHECK', 'third', { prevResult: next.result })).toMatchObject({ exitCode: 0 });
    expect((await add(one, 'late')).error).toMatchObject({ code: 11 });
    expect(await three.call('DEL', 'third')).toMatchObject({ exitCode: 0 });
    expect(addressOf(await add(one, 'again'))).toBe(addressOf(source) ?? '');
  });

  test('[1.1.0] an invalid configuration is refused before anything is written', async () => {
    const { call, dir } = network({ subnets: [{ ipv4: '10.6.0.1/24' }] });
    expect((await call('ADD')).error).toMatchObject({ code: 7, msg: expect.stringContaining('10.6.0.0/24') });
    expect(existsSync(dir)).toBe(false);
  });
});
