import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { readEntry } from '../../../src/attachments/entries.ts';
import type { PluginEvent } from '../../../src/chain/run/runtime.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import { deletePod } from '../../../src/delegate/delete.ts';
import { findPod, KEY, makePod, makeRunner, runtimeOf } from '../../helpers/delegates.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

const result = (ifname: string, address: string, routes: object[] = []) => ({
  cniVersion: '1.1.0',
  interfaces: [{ name: ifname, mac: '02:00:00:00:00:01', sandbox: '/proc/self/ns/net' }],
  ips: [{ address, interface: 0 }],
  routes,
});

/** A network of one plugin that answers as told. */
function network(name: string, script: JsonObject = {}, more: JsonObject = {}): JsonObject {
  return { cniVersion: '1.1.0', name, plugins: [chain.noop(name, script, more)] };
}

/** A runtime in which plugins do otherwise once one has failed. */
const failing = (name: string, then: JsonObject, others: readonly string[] = []) => ({
  ...runtimeOf(chain),
  onPlugin({ network: failed, error }: PluginEvent) {
    if (failed !== name || error === undefined) return;
    chain.rescript(name, then);
    for (const other of others) chain.rescript(other, { ReportError: 'busy' });
  },
});

const recordFiles = () => {
  const dirs = ['unsettled/outer', 'results'].map(dir => path.join(chain.dir, 'state/pods', dir));
  return dirs.flatMap(dir => (fs.existsSync(dir) ? fs.readdirSync(dir) : []));
};

describe('addPod()', () => {
  test('attaches in order, returns the default result, and keeps a record with the status of each', async () => {
    const [one, two] = [result('eth0', '10.0.0.2/24'), result('net1', '10.1.0.2/24')];
    const delegates = [network('one', { ReportResult: one }), network('two', { ReportResult: two })];
    const runner = makeRunner(chain, { delegates });
    expect(await addPod(runner, makePod())).toEqual(one as never);
    expect(chain.order()).toEqual(['ADD one', 'ADD two']);
    expect(chain.calls().map(({ env }) => env.CNI_IFNAME)).toEqual(['eth0', 'net1']);

    const record = findPod(runner);
    expect(
      record?.networks.map(({ network: name, ifname, source }) => [name, ifname, JSON.parse(source)]),
    ).toEqual([
      ['one', 'eth0', delegates[0] as never],
      ['two', 'net1', delegates[1] as never],
    ]);
    const dns = {};
    const mac = '02:00:00:00:00:01';
    const status = [
      { name: 'one', interface: 'eth0', ips: ['10.0.0.2'], mac, default: true as const, dns },
      { name: 'two', interface: 'net1', ips: ['10.1.0.2'], mac, dns },
    ];
    expect(record?.networks.map(one => one.status)).toEqual(status);
    expect(runner.published).toEqual([status]);
  });

  test('writes the record before it calls the first plugin', async () => {
    const seen: string[][] = [];
    const runtime = { ...runtimeOf(chain), onPlugin: () => void seen.push(recordFiles()) };
    const runner = makeRunner(chain, { delegates: [network('one')] }, { runtime });
    await addPod(runner, makePod());
    expect(seen).toEqual([['c1:eth0']]);
  });

  test('undoes everything in reverse order when a network fails, and passes its error on unchanged', async () => {
    const delegates = [
      network('one', { ReportResult: result('eth0', '10.0.0.2/24') }),
      network('two'),
      network('three', { ReportError: 'no more', ReportErrorCode: 112 }),
      network('four'),
    ];
    const runner = makeRunner(chain, { delegates }, { runtime: failing('three', {}) });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({ code: 112, message: 'no more' });
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'ADD three', 'DEL three', 'DEL two', 'DEL one']);
    expect(recordFiles()).toEqual([]);
  });

  test('keeps on record what could not be undone', async () => {
    const delegates = [network('one'), network('two'), network('three', { ReportError: 'no' })];
    // Once three has failed, two refuses its DEL.
    const runner = makeRunner(chain, { delegates }, { runtime: failing('three', {}, ['two']) });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({ message: 'no' });
    expect(chain.order().slice(3)).toEqual(['DEL three', 'DEL two', 'DEL one']);
    expect(runner.warnings).toContain('a network could not be detached again');
    expect(findPod(runner)?.record).toMatchObject({ phase: 'failed', attempts: 1 });
    chain.rescript('two', {});
    await deletePod(runner, KEY, '');
    expect(chain.order().slice(6)).toEqual(['DEL two']);
    expect(recordFiles()).toEqual([]);
  });

  test('retries the DEL of a network that failed to undo its own ADD', async () => {
    const delegates = [network('one'), network('two', { ReportError: 'no' })];
    const runner = makeRunner(chain, { delegates });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({ message: 'no' });
    expect(chain.order().slice(2)).toEqual(['DEL two', 'DEL two', 'DEL one']);
    expect(findPod(runner)?.record.phase).toBe('failed');
  });

  test('undoes everything when the status cannot be published', async () => {
    const publish = async () => {
      throw new Error('no API server');
    };
    const runner = makeRunner(chain, { delegates: [network('one'), network('two')] }, { publish });
    await expect(addPod(runner, makePod())).rejects.toThrow('no API server');
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one']);
    expect(recordFiles()).toEqual([]);
  });

  test('takes a published status back when the record cannot be completed', async () => {
    const published: unknown[] = [];
    const publish = async (_: unknown, status: unknown) => {
      published.push(status);
      // Where the pod's entry would be written.
      if (status !== undefined) fs.writeFileSync(path.join(chain.dir, 'state/pods/results'), '');
    };
    const runner = makeRunner(chain, { delegates: [network('one')] }, { publish });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({ code: 5 });
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
    expect(published).toHaveLength(2);
    expect(published).toEqual([[expect.objectContaining({ name: 'one' })], undefined]);
  });

  test("undoes everything when the version of the runner's list cannot express the result", async () => {
    const runner = makeRunner(chain, { delegates: [network('one'), network('two')] });
    const old = { ...runner, options: { ...runner.options, version: '0.2.0' as const } };
    await expect(addPod(old, makePod())).rejects.toThrow('Cannot convert result to 0.2.0');
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
    expect(recordFiles()).toEqual([]);
  });

  test('finds an error in the last network before it attaches the first', async () => {
    const runner = makeRunner(chain, { delegates: [network('one')], networks: 'gone' });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({ code: 7 });
    expect(chain.order()).toEqual([]);
    expect(recordFiles()).toEqual([]);
  });

  test('calls plugins in files beside the default network last, after a passive one', async () => {
    const dir = path.join(chain.dir, 'net.d');
    const file = path.join(dir, 'main.conflist');
    const conf = {
      network: file,
      auxiliaryCNIChainName: 'aux',
      networks: [network('two')].map(config => ({ config })),
    };
    fs.mkdirSync(path.join(dir, 'aux'), { recursive: true });
    fs.writeFileSync(file, JSON.stringify(network('main')));
    fs.writeFileSync(path.join(dir, 'aux/notes.txt'), 'no link');
    const without = makeRunner(chain, conf);
    await addPod(without, makePod());
    expect(chain.order()).toEqual(['ADD main', 'ADD two']);
    await deletePod(without, KEY, '');

    for (const name of ['20-last', '10-first']) {
      fs.writeFileSync(path.join(dir, 'aux', `${name}.conf`), JSON.stringify(chain.noop(name)));
    }
    const runner = makeRunner(chain, conf);
    await addPod(runner, makePod());
    const added = chain.calls().slice(4);
    expect(chain.order().slice(4)).toEqual(['ADD main', 'ADD two', 'ADD 10-first', 'ADD 20-last']);
    expect(added.map(({ env, request }) => [env.CNI_IFNAME, request.name])).toEqual([
      ['eth0', 'main'],
      ['net1', 'two'],
      ['net2', 'aux'],
      ['net2', 'aux'],
    ]);
    expect(added[2]?.request.prevResult).toEqual({ cniVersion: '1.1.0', dns: {} });
    fs.rmSync(path.join(dir, 'aux'), { recursive: true });
    await deletePod(runner, KEY, '');
    expect(chain.order().slice(8)).toEqual(['DEL 20-last', 'DEL 10-first', 'DEL two', 'DEL main']);

    fs.mkdirSync(path.join(dir, 'aux'));
    fs.writeFileSync(path.join(dir, 'aux/10-first.conf'), '{');
    await expect(addPod(makeRunner(chain, conf), makePod())).rejects.toMatchObject({ code: 6 });
  });

  test('refuses an interface name that exists in the container, and keeps the existing interface', async () => {
    const findTaken = (ifnames: readonly string[]) => ifnames.find(ifname => ifname === 'net1');
    const runner = makeRunner(chain, { delegates: [network('one'), network('two')] }, { findTaken });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({
      code: 4,
      details: expect.stringContaining('"interfacePrefix"'),
    });
    expect(chain.order()).toEqual([]);
    expect(recordFiles()).toEqual([]);
  });

  test('fails with "try again later" while the default network is not ready', async () => {
    const readinessFile = path.join(chain.dir, 'ready');
    const runner = makeRunner(chain, { delegates: [network('one')], readinessFile });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({ code: 11 });
    fs.writeFileSync(readinessFile, '');
    await addPod(runner, makePod());
    expect(chain.order()).toEqual(['ADD one']);
  });

  test('refuses a second ADD in one namespace, and keeps the first', async () => {
    const runner = makeRunner(chain, { delegates: [network('one')] });
    await addPod(runner, makePod());
    await expect(addPod(runner, makePod())).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining('it is already attached; run DEL first'),
    });
    expect(chain.order()).toEqual(['ADD one']);
    expect(recordFiles()).toHaveLength(1);
  });

  test('undoes an ADD on record of another namespace first', async () => {
    const runner = makeRunner(chain, { delegates: [network('one')] });
    await addPod(runner, makePod());
    await addPod(runner, makePod({ netns: '/proc/self/ns/uts' }));
    expect(chain.order()).toEqual(['ADD one', 'DEL one', 'ADD one']);
    expect(chain.calls()[1]?.env.CNI_NETNS).toBe('/proc/self/ns/net');
    expect(findPod(runner)?.record.netns).toBe('/proc/self/ns/uts');
  });

  test('refuses a requested address that no plugin assigned', async () => {
    const ips = ['10.0.0.9'];
    const delegates = [network('one'), { name: 'two', ips }];
    fs.mkdirSync(path.join(chain.dir, 'net.d'));
    const write = (list: object) =>
      fs.writeFileSync(path.join(chain.dir, 'net.d/two.conflist'), JSON.stringify(list));
    write(network('two', { ReportResult: result('net1', '10.0.0.8/24') }));
    const runner = makeRunner(chain, { delegates });
    await expect(addPod(runner, makePod())).rejects.toMatchObject({
      code: 7,
      message: 'Cannot give "10.0.0.9" to network "two": none of its plugins used it',
    });
    expect(chain.order()).toEqual(['ADD one', 'ADD two', 'DEL two', 'DEL one']);
    write(network('two', { ReportResult: result('net1', '10.0.0.9/24') }));
    await addPod(runner, makePod());
  });

  test('passes the directories of the runner to plugins in their environment, and CNI_PATH of both', async () => {
    const runtime = { ...runtimeOf(chain), env: { ...process.env, CATENA_STATE_DIR: '/elsewhere' } };
    await addPod(
      makeRunner(chain, { delegates: [network('one')] }, { runtime }),
      makePod({ args: 'A=1;B=2' }),
    );
    expect(chain.calls()[0]?.env).toMatchObject({
      CNI_ARGS: 'A=1;B=2',
      CNI_PATH: chain.runtime.pluginDirs[0] as string,
    });
  });
});

describe('addPod(), default routes', () => {
  const v4 = { dst: '0.0.0.0/0', gw: '10.0.0.1' };
  const v6 = { dst: '::/0', gw: 'fd00::1' };
  const other = { dst: '10.9.0.0/16' };
  const both = (conf: JsonObject = {}) => {
    const delegates = [
      network('one', { ReportResult: result('eth0', '10.0.0.2/24', [v4, v6, other]) }),
      network('two', { ReportResult: result('net1', '10.1.0.2/24', [v4, v6, other]) }),
    ];
    const runner = makeRunner(chain, { delegates, ...conf });
    runner.present.set('eth0', [4, 6]).set('net1', [4, 6]);
    return runner;
  };
  const cachedRoutes = (name: string, ifname: string) =>
    readEntry(chain.runtime.cacheDir, { network: name, containerId: 'c1', ifname })?.result?.routes;

  test('belong to the first network that sets one', async () => {
    const runner = both();
    expect((await addPod(runner, makePod())).routes).toEqual([v4, v6, other]);
    expect(runner.changes).toEqual(['remove 4 net1', 'remove 6 net1']);
    expect(cachedRoutes('two', 'net1')).toEqual([other]);
  });

  test('come from the configured network of each family', async () => {
    const runner = both({ defaultRoute: { ipv6: 'two' } });
    expect((await addPod(runner, makePod())).routes).toEqual([v4, other]);
    expect(runner.changes).toEqual(['remove 6 eth0', 'remove 4 net1']);
    expect(cachedRoutes('one', 'eth0')).toEqual([v4, other]);
    expect(cachedRoutes('two', 'net1')).toEqual([v6, other]);
  });

  test('ignore an owner that this pod does not have', async () => {
    const runner = both({ defaultRoute: 'storage' });
    await addPod(runner, makePod());
    expect(runner.changes).toEqual(['remove 4 net1', 'remove 6 net1']);
  });

  test('use the requested gateways', async () => {
    fs.mkdirSync(path.join(chain.dir, 'net.d'));
    fs.writeFileSync(
      path.join(chain.dir, 'net.d/three.conflist'),
      JSON.stringify(network('three', { ReportResult: result('net2', '10.2.0.2/24') })),
    );
    const runner = both({ networks: [{ name: 'three', 'default-route': ['10.2.0.1'] }] });
    expect((await addPod(runner, makePod())).routes).toEqual([v6, other]);
    expect(runner.changes).toEqual([
      'remove 4 eth0',
      'remove 4 net1',
      'remove 6 net1',
      'remove 4 net2',
      'add 10.2.0.1 net2',
    ]);
    expect(cachedRoutes('three', 'net2')).toEqual([{ dst: '0.0.0.0/0', gw: '10.2.0.1' }]);
    expect(runner.published[0]?.[2]?.gateway).toEqual(['10.2.0.1']);
  });

  test('stay those of the network when the request is empty', async () => {
    const runner = both({ networks: [] });
    const delegates = [runner.options.delegates[0], { ...runner.options.delegates[1], defaultRoute: [] }];
    const asking = { ...runner, options: { ...runner.options, delegates: delegates as never } };
    expect((await addPod(asking, makePod())).routes).toEqual([other]);
    expect(runner.changes).toEqual(['remove 4 eth0', 'remove 6 eth0']);
  });

  test('requested of a network that sets none are refused, unless no other one would lose its own', async () => {
    const runner = both({ networks: [] });
    const [one, two] = runner.options.delegates;
    const asking = (...delegates: object[]) => ({
      ...runner,
      options: { ...runner.options, delegates } as never,
    });
    runner.present.set('net1', [4]);
    await expect(addPod(asking({ ...one }, { ...two, defaultRoute: [] }), makePod())).rejects.toMatchObject({
      code: 7,
      message:
        'Cannot give the IPv6 default route to network "two": it sets none, and its "default-route" names no gateway; the pod would lose that of network "one"',
    });
    expect(findPod(runner)).toBeUndefined();
    runner.changes.length = 0;
    runner.present.set('eth0', []);
    runner.present.set('net1', [4, 6]);
    expect((await addPod(asking({ ...one, defaultRoute: [] }, { ...two }), makePod())).routes).toBeDefined();
    expect(runner.changes).toEqual([]);
  });

  test('requested twice for one family are refused', async () => {
    const runner = both();
    const delegates = runner.options.delegates.map(one => ({ ...one, defaultRoute: ['10.0.0.1'] }));
    const asking = { ...runner, options: { ...runner.options, delegates } };
    await expect(addPod(asking, makePod())).rejects.toMatchObject({
      code: 7,
      message: 'Cannot give the IPv4 default route to networks "one" and "two": only one may have it',
    });
    expect(chain.order()).toEqual([]);
  });

  test('of a single network stay unchanged', async () => {
    const delegates = [network('one', { ReportResult: result('eth0', '10.0.0.2/24', [v4]) })];
    const runner = makeRunner(chain, { delegates });
    runner.present.set('eth0', [4]);
    expect((await addPod(runner, makePod())).routes).toEqual([v4]);
    expect(runner.changes).toEqual([]);
  });
});
