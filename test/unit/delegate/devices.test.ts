import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import type { PluginEvent } from '../../../src/chain/run/runtime.ts';
import { CniError } from '../../../src/cni/errors.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import { deletePod } from '../../../src/delegate/delete.ts';
import { listPodDevices } from '../../../src/delegate/kubelet.ts';
import { listPods } from '../../../src/delegate/record.ts';
import { deadline } from '../../helpers/deadline.ts';
import { findPod, KEY, makePod, makeRunner, runtimeOf, type TestRunner } from '../../helpers/delegates.ts';
import { type Kubelet, type KubeletPodDevices, startKubelet } from '../../helpers/kubelet.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

const NET = 'example.com/net';
const GPU = 'example.com/gpu';
const NETWORKS = 'k8s.v1.cni.cncf.io/networks';
const POD = { namespace: 'ns', name: 'web', uid: 'uid-1' };
const BOUNDS = { deadlineMs: 20_000, maxBytes: 16 * 1024 * 1024 };
/** For answers that do not come. */
const briefly = () => ({ ...BOUNDS, deadlineMs: deadline(400) });

let chain: NoopChain;
let kubelet: Kubelet;
beforeEach(async () => {
  chain = makeNoopChain();
  kubelet = await startKubelet(path.join(chain.dir, 'kubelet'));
});
afterEach(() => {
  kubelet.close();
  chain.dispose();
});

const web = (...containers: KubeletPodDevices['containers']): KubeletPodDevices => ({
  name: 'web',
  containers,
});
const idsOf = async (bounds = BOUNDS) =>
  (await listPodDevices(kubelet.dir, POD, bounds)).map(({ resource, id }) => `${resource} ${id}`);

describe('listPodDevices()', () => {
  test.each([[['v1', 'v1alpha1']], [['v1']], [['v1alpha1']]])('asks a kubelet with %j', async versions => {
    kubelet.close();
    kubelet = await startKubelet(kubelet.dir, versions);
    kubelet.pods = [
      { name: 'other', containers: [{ [NET]: ['x'] }] },
      { name: 'web', namespace: 'other', containers: [{ [NET]: ['y'] }] },
      web({ [NET]: ['b', 'a'], [GPU]: ['g'] }, {}, { [NET]: ['0'] }),
    ];
    expect(await idsOf()).toEqual([`${NET} a`, `${NET} b`, `${GPU} g`, `${NET} 0`]);
    expect(kubelet.calls).toEqual([versions[0] as string]);
  });

  test.each<[string, () => void, number, string]>([
    ['hangs', () => Object.assign(kubelet, { mood: 'hang' }), 11, 'the kubelet did not answer on'],
    ['answers 20 MB', () => Object.assign(kubelet, { mood: 'huge' }), 11, 'the kubelet did not answer on'],
    [
      'answers no message',
      () => Object.assign(kubelet, { mood: 'broken' }),
      11,
      'the kubelet did not answer on',
    ],
    ['fails', () => Object.assign(kubelet, { mood: 'error' }), 11, 'the kubelet did not answer on'],
    ['was killed', () => kubelet.kill(), 11, 'the kubelet did not answer on'],
    [
      'starts',
      () => fs.rmSync(`${kubelet.dir}/pod-resources/kubelet.sock`),
      11,
      'the kubelet did not answer on',
    ],
    ['does not know the pod', () => {}, 11, 'the kubelet does not list the pod yet'],
  ])('has an error for a kubelet that %s', async (_, prepare, code, text) => {
    prepare();
    const error = await idsOf(briefly()).catch(one => one);
    expect(error).toBeInstanceOf(CniError);
    expect(error).toMatchObject({ code });
    expect(error.message).toStartWith(`Cannot find the devices of pod "ns/web": ${text}`);
  });

  test('has an error for a kubelet without the service, and for the lack of one', async () => {
    kubelet.close();
    kubelet = await startKubelet(kubelet.dir, ['v2']);
    await expect(idsOf()).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining('neither v1.PodResourcesLister nor v1alpha1'),
    });
    fs.rmSync(kubelet.dir, { recursive: true });
    await expect(idsOf()).rejects.toMatchObject({ code: 7, details: expect.stringContaining('kubeletDir') });
  });

  const entry = (container: string, resource: string, ids: unknown, uid = 'uid-1') => ({
    PodUID: uid,
    ContainerName: container,
    ResourceName: resource,
    DeviceIDs: ids,
    AllocResp: 'CgA=',
  });
  const noted = (...entries: object[]) => ({
    Data: { PodDeviceEntries: entries, RegisteredDevices: {} },
    Checksum: 1,
  });

  test('reads the file of a kubelet without socket, in both of its forms', async () => {
    kubelet.note(
      noted(
        entry('two', NET, { '0': ['c'], '1': ['b'], '-1': null }),
        entry('one', NET, { '-1': ['z'] }),
        entry('one', NET, { '-1': ['y'] }, 'uid-2'),
      ),
    );
    expect(await idsOf()).toEqual([`${NET} z`, `${NET} b`, `${NET} c`]);
    kubelet.note(noted(entry('one', GPU, ['g2', 'g1'])));
    expect(await idsOf()).toEqual([`${GPU} g1`, `${GPU} g2`]);
    kubelet.note({ Data: { PodDeviceEntries: null } });
    expect(await idsOf()).toEqual([]);
  });

  test.each<[string, string | object, number, string]>([
    ['text', 'not JSON', 6, 'is not what this version can read'],
    [
      'a file that was cut off',
      JSON.stringify(noted(entry('a', NET, ['x']))).slice(0, -30),
      6,
      'is not what this',
    ],
    ['another version', { version: 2, pods: [] }, 6, 'is not what this version can read'],
    ['other entries', noted({ PodUID: 'uid-1', Devices: {} }), 6, 'is not what this version can read'],
    ['17 MB', 'x'.repeat(17 * 1024 * 1024), 5, 'more than 16777216'],
  ])('has an error for %s in the file', async (_, content, code, text) => {
    kubelet.note(content);
    await expect(idsOf()).rejects.toMatchObject({ code, message: expect.stringContaining(text) });
  });

  test('does not wait for a FIFO in place of the file', async () => {
    kubelet.note('');
    const file = `${kubelet.dir}/device-plugins/kubelet_internal_checkpoint`;
    fs.rmSync(file);
    Bun.spawnSync(['mkfifo', file]);
    await expect(idsOf()).rejects.toMatchObject({
      code: 5,
      message: expect.stringContaining('not a regular file'),
    });
  });
});

describe('a pod with devices', () => {
  const define = (name: string, resource: string | undefined, plugins?: JsonObject[]) => {
    const dir = path.join(chain.dir, 'definitions');
    fs.mkdirSync(dir, { recursive: true });
    const annotations = resource ? { 'k8s.v1.cni.cncf.io/resourceName': resource } : {};
    const config = JSON.stringify({
      cniVersion: '1.1.0',
      name,
      plugins: plugins ?? [
        chain.noop(name, {}, { capabilities: { deviceID: true } }),
        chain.noop(`${name}-2`),
      ],
    });
    const metadata = { name, namespace: 'ns', annotations };
    fs.writeFileSync(
      path.join(dir, `${name}.json`),
      JSON.stringify({ kind: 'NetworkAttachmentDefinition', metadata, spec: { config } }),
    );
  };
  const runner = (more: JsonObject = {}) =>
    makeRunner(chain, {
      delegates: [{ cniVersion: '1.1.0', name: 'main', plugins: [chain.noop('main')] }],
      definitionsDir: path.join(chain.dir, 'definitions'),
      kubeletDir: kubelet.dir,
      deviceInfoDir: infoDir(),
      ...more,
    });
  const pod = (networks: string | object[], containerId = 'c1', name = 'web', netns = '/proc/self/ns/net') =>
    makePod({
      containerId,
      netns,
      args: `K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${name};K8S_POD_UID=uid-1`,
      capabilityArgs: {
        'io.kubernetes.cri.pod-annotations': {
          [NETWORKS]: typeof networks === 'string' ? networks : JSON.stringify(networks),
        },
      },
    });
  const infoDir = () => path.join(chain.dir, 'devinfo');
  const devices = (from: TestRunner) => findPod(from)?.networks.map(({ device }) => device?.id ?? '');
  const got = () =>
    chain
      .calls()
      .filter(({ command }) => command === 'ADD')
      .map(({ request }) => {
        const { label, deviceID, pciBusID, runtimeConfig } = request as Record<string, never>;
        return [label, deviceID, pciBusID, (runtimeConfig as JsonObject | undefined)?.deviceID];
      });

  beforeEach(() => {
    define('a', NET);
    define('b', NET);
    define('g', GPU);
    define('plain', undefined);
  });

  test('gives them to its networks in order, and each to every plugin of its network', async () => {
    kubelet.pods = [web({ [NET]: ['n9'], [GPU]: ['g1'] }, { [NET]: ['n3', 'n1'] })];
    const own = runner();
    await addPod(own, pod('a,g,plain,b,a'));
    expect(devices(own)).toEqual(['', 'n9', 'g1', '', 'n1', 'n3']);
    expect(kubelet.calls).toHaveLength(1);
    expect(got()).toEqual([
      ['main', undefined, undefined, undefined],
      ['a', 'n9', 'n9', 'n9'],
      ['a-2', 'n9', 'n9', undefined],
      ['g', 'g1', 'g1', 'g1'],
      ['g-2', 'g1', 'g1', undefined],
      ['plain', undefined, undefined, undefined],
      ['plain-2', undefined, undefined, undefined],
      ['b', 'n1', 'n1', 'n1'],
      ['b-2', 'n1', 'n1', undefined],
      ['a', 'n3', 'n3', 'n3'],
      ['a-2', 'n3', 'n3', undefined],
    ] as never);
    await deletePod(own, KEY, '');
    expect(listPods(own.podsDir).pods).toEqual([]);
  });

  test('gives those of claims as well, after those of device plugins', async () => {
    kubelet.pods = [web({ [NET]: ['n1'] })];
    const base = runner();
    const asked: unknown[] = [];
    const listClaimedDevices = async (of: unknown) => {
      asked.push(of);
      return [
        { resource: GPU, id: '0000:01:00.1' },
        { resource: NET, id: '0000:01:00.2' },
      ];
    };
    const own = { ...base, options: { ...base.options, listClaimedDevices } };
    await addPod(own, pod('plain', 'c2', 'plain'));
    expect(asked).toEqual([]);
    await addPod(own, pod('a,b,g'));
    expect(devices(own)).toEqual(['', 'n1', '0000:01:00.2', '0000:01:00.1']);
    expect(asked).toEqual([POD]);
  });

  test('asks no kubelet without a resource, and needs no device of a resource that only marks nodes', async () => {
    kubelet.mood = 'hang';
    await addPod(runner(), pod('plain'));
    expect(kubelet.calls).toEqual([]);
    kubelet.mood = 'well';
    kubelet.pods = [{ name: 'two', containers: [{}] }];
    await addPod(runner(), pod('a', 'c2', 'two'));
    expect(got().at(-2)).toEqual(['a', undefined, undefined, undefined] as never);
  });

  test('a pod may name one that it was given, and no other', async () => {
    kubelet.pods = [web({ [NET]: ['n1', 'n2', 'n3', 'n4'] })];
    const named = (name: string, deviceID: string) => ({ name, deviceID });
    const own = runner();
    // The second network does not get what the third one names.
    await addPod(own, pod([named('a', 'n2'), { name: 'b' }, named('b', 'n1'), named('plain', 'n3')]));
    expect(devices(own)).toEqual(['', 'n2', 'n4', 'n1', 'n3']);
  });

  test.each<[string, object[], string]>([
    [
      'one of another pod',
      [{ name: 'a', deviceID: 'n7' }],
      'Cannot give device "n7" to network "ns/a": the pod names it',
    ],
    ['one of another resource', [{ name: 'a', deviceID: 'g1' }], 'Cannot give device "g1" to network "ns/a"'],
    [
      'one twice',
      [
        { name: 'a', deviceID: 'n1' },
        { name: 'b', deviceID: 'n1' },
      ],
      'Cannot give device "n1" to network "ns/b": another network of the pod has it',
    ],
    [
      'more than it was given',
      [{ name: 'a' }, { name: 'b' }, { name: 'a' }],
      `Cannot give a device of "${NET}" to network "ns/a": other networks of the pod have all of them`,
    ],
  ])('refuses %s, before anything is changed', async (_, networks, text) => {
    kubelet.pods = [
      web({ [NET]: ['n1', 'n2'] }, { [GPU]: ['g1'] }),
      { name: 'x', containers: [{ [NET]: ['n7'] }] },
    ];
    const own = runner();
    await expect(addPod(own, pod(networks))).rejects.toMatchObject({
      code: 7,
      message: expect.stringContaining(text),
    });
    expect(chain.calls()).toEqual([]);
    expect(findPod(own)).toBeUndefined();
  });

  test.each(['killed', 'error', 'broken', 'huge'] as const)(
    'a kubelet that is or answers "%s" leaves nothing behind',
    async mood => {
      if (mood === 'killed') kubelet.kill();
      else kubelet.mood = mood;
      const own = runner();
      await expect(addPod(own, pod('a'))).rejects.toMatchObject({ code: 11 });
      expect(chain.calls()).toEqual([]);
      expect(findPod(own)).toBeUndefined();
    },
  );

  test.each<[string, number, () => Partial<TestRunner['options']>]>([
    [
      'a checkpoint of another version',
      6,
      () => {
        fs.rmSync(`${kubelet.dir}/pod-resources`, { recursive: true });
        kubelet.note({ version: 2, pods: [] });
        return {};
      },
    ],
    [
      'a claim without devices',
      7,
      () => {
        kubelet.pods = [web({})];
        return {
          listClaimedDevices: () =>
            Promise.reject(new CniError(7, 'Cannot find the claimed devices of pod "ns/web"')),
        };
      },
    ],
  ])('%s leaves nothing behind', async (_, code, prepare) => {
    const base = runner();
    const own = { ...base, options: { ...base.options, ...prepare() } };
    await expect(addPod(own, pod('a'))).rejects.toMatchObject({ code });
    expect(chain.calls()).toEqual([]);
    expect(findPod(own)).toBeUndefined();
  });

  test('a device that is gone fails its network, and leaves nothing behind', async () => {
    kubelet.pods = [web({ [NET]: ['0000:ff:1f.7'] })];
    const error = 'Cannot find a device "0000:ff:1f.7"';
    define('a', NET, [chain.noop('a', { ReportError: error })]);
    const runtime = {
      ...runtimeOf(chain),
      onPlugin: ({ error }: PluginEvent) => void (error && chain.rescript('a', {})),
    };
    const own = { ...runner(), runtime };
    await expect(addPod(own, pod('a'))).rejects.toMatchObject({ message: error });
    expect(findPod(own)).toBeUndefined();
    expect(
      fs.existsSync(path.join(infoDir(), 'cni')) ? fs.readdirSync(path.join(infoDir(), 'cni')) : [],
    ).toEqual([]);
  });

  test('waits for the DEL of another pod that has the device, unless its namespace is gone', async () => {
    kubelet.pods = [web({ [NET]: ['n1'] }), { name: 'next', containers: [{ [NET]: ['n1'] }] }];
    const own = runner();
    await addPod(own, pod('a'));
    const next = pod('a', 'c2', 'next');
    await expect(addPod(own, next)).rejects.toMatchObject({
      code: 11,
      message: 'Cannot give device "n1" to network "ns/a": container "c1" still has it',
    });
    expect(listPods(own.podsDir).pods).toHaveLength(1);
    expect(chain.order().filter(call => call.startsWith('DEL'))).toEqual([]);
    await deletePod(own, KEY, '');
    const sleep = Bun.spawn(['sleep', '60']);
    await addPod(own, pod('a', 'c2', 'next', `/proc/${sleep.pid}/ns/net`));
    await expect(addPod(own, pod('a'))).rejects.toMatchObject({ code: 11 });
    sleep.kill();
    await sleep.exited;
    await addPod(own, pod('a'));
    expect(listPods(own.podsDir).pods.map(({ record }) => record.containerId)).toEqual(['c1', 'c2']);
  });

  describe('with device information', () => {
    const INFO = {
      type: 'pci',
      version: '1.1.0',
      pci: { 'pci-address': '0000:01:02.2', 'vhost-net': '/dev/vhost-net' },
    };
    const tell = (content: object | string, id = 'n/1', resource = 'example.com-net') => {
      fs.mkdirSync(path.join(infoDir(), 'dp'), { recursive: true });
      const text = typeof content === 'string' ? content : JSON.stringify(content);
      fs.writeFileSync(path.join(infoDir(), 'dp', `${resource}-${id.replace('/', '-')}-device.json`), text);
    };
    const own = (name = 'a', ifname = 'net1', containerId = 'c1') =>
      path.join(infoDir(), 'cni', `${name}-${containerId}_${ifname}`);
    const left = () => (fs.existsSync(path.dirname(own())) ? fs.readdirSync(path.dirname(own())) : []);

    beforeEach(() => {
      kubelet.pods = [web({ [NET]: ['n/1', 'n/2'] })];
    });

    test('of the device plugin reaches the plugins that declare it and the status, until DEL', async () => {
      const reader = chain.noop('reader', {}, { capabilities: { CNIDeviceInfoFile: true } });
      define('a', NET, [chain.noop('a'), reader]);
      tell(INFO);
      const runner1 = runner();
      await addPod(runner1, pod('a,b,plain'));
      const [, a, b, plain] = runner1.published[0] ?? [];
      expect(a?.['device-info']).toEqual(INFO);
      expect(b).not.toHaveProperty('device-info');
      expect(plain).not.toHaveProperty('device-info');
      const files = chain
        .calls()
        .map(({ request }) => [
          request.label,
          (request.runtimeConfig as JsonObject | undefined)?.CNIDeviceInfoFile,
        ]);
      expect(files.filter(([, file]) => file)).toEqual([['reader', own()]]);
      expect(JSON.parse(fs.readFileSync(own(), 'utf8'))).toEqual(INFO);
      await deletePod(runner1, KEY, '');
      expect(left()).toEqual([]);
    });

    test('of a plugin is in the status, and what an earlier pod left is not', async () => {
      define('plain', undefined, [chain.noop('plain', {}, { capabilities: { CNIDeviceInfoFile: true } })]);
      const info = { type: 'memif', version: '1.1.0', memif: { role: 'slave', path: '/x', mode: 'ip' } };
      fs.mkdirSync(path.dirname(own()), { recursive: true });
      fs.writeFileSync(own('plain'), JSON.stringify(INFO));
      const runtime = {
        ...runtimeOf(chain),
        onPlugin: ({ network }: PluginEvent) => {
          if (network === 'plain' && isWriting) fs.writeFileSync(own('plain'), JSON.stringify(info));
        },
      };
      let isWriting = false;
      const silent = { ...runner(), runtime };
      await addPod(silent, pod('plain'));
      expect(silent.published[0]?.[1]).not.toHaveProperty('device-info');
      await deletePod(silent, KEY, '');
      isWriting = true;
      await addPod(silent, pod('plain'));
      expect(silent.published[1]?.[1]?.['device-info']).toEqual(info);
      // Its record is lost.
      fs.rmSync(path.join(chain.dir, 'state/pods'), { recursive: true });
      isWriting = false;
      await deletePod(silent, KEY, '');
      expect(left()).toEqual([]);
    });

    test.each<[string, () => void, string]>([
      [
        '10 MB',
        () => tell(`{"type":"pci","pci":{"x":"${'x'.repeat(10 * 1024 * 1024)}"}}`),
        'more than 65536',
      ],
      ['text', () => tell('hello'), 'device information'],
      ['an array', () => tell('[]'), 'device information'],
      ['no type', () => tell({ version: '1.1.0' }), 'it has no "type"'],
      [
        'no device',
        () => tell({ type: 'vdpa', version: '1.1.0' }),
        'its type is "vdpa", but it has no object',
      ],
      [
        'a link in its place',
        () => {
          tell(INFO, 'else');
          const dir = path.join(infoDir(), 'dp');
          fs.renameSync(
            path.join(dir, 'example.com-net-else-device.json'),
            path.join(chain.dir, 'info.json'),
          );
          fs.symlinkSync(
            path.join(chain.dir, 'info.json'),
            path.join(dir, 'example.com-net-n-1-device.json'),
          );
        },
        'there is a symbolic link in its path',
      ],
      [
        'a link in its path',
        () => {
          tell(INFO);
          fs.renameSync(path.join(infoDir(), 'dp'), path.join(chain.dir, 'elsewhere'));
          fs.symlinkSync(path.join(chain.dir, 'elsewhere'), path.join(infoDir(), 'dp'));
        },
        'there is a symbolic link in its path',
      ],
      [
        'a link in the path of what is written',
        () => {
          tell(INFO);
          fs.mkdirSync(path.join(chain.dir, 'elsewhere'));
          fs.symlinkSync(path.join(chain.dir, 'elsewhere'), path.join(infoDir(), 'cni'));
        },
        'there is a symbolic link in its path',
      ],
      [
        'a FIFO in its place',
        () => {
          tell(INFO);
          const file = path.join(infoDir(), 'dp', 'example.com-net-n-1-device.json');
          fs.rmSync(file);
          Bun.spawnSync(['mkfifo', file]);
        },
        'it is not a regular file',
      ],
    ])('with %s is refused, and leaves nothing behind', async (_, prepare, text) => {
      prepare();
      const one = runner();
      const error = await addPod(one, pod('b,a')).catch(thrown => thrown);
      expect(error).toBeInstanceOf(CniError);
      expect(error.message).toContain(text);
      expect(error.message.length).toBeLessThan(1_000);
      expect([6, 7]).toContain(error.code);
      expect(chain.order()).toEqual(['ADD main', 'DEL main']);
      expect(findPod(one)).toBeUndefined();
      expect(left()).toEqual([]);
      expect(
        fs.existsSync(path.join(chain.dir, 'elsewhere'))
          ? fs.readdirSync(path.join(chain.dir, 'elsewhere'))
          : [],
      ).not.toContain('b-c1_net1');
    });

    test('is passed on without a version, as multus does', async () => {
      const { version: _, ...info } = INFO;
      tell(info);
      const one = runner();
      await addPod(one, pod('a'));
      expect(one.published[0]?.[1]?.['device-info']).toEqual(info);
    });

    test('of a network that fails goes with it', async () => {
      define('b', NET, [chain.noop('b', { ReportError: 'no' })]);
      tell(INFO);
      tell(INFO, 'n/2');
      const runtime = {
        ...runtimeOf(chain),
        onPlugin: ({ error }: PluginEvent) => void (error && chain.rescript('b', {})),
      };
      const one = { ...runner(), runtime };
      await expect(addPod(one, pod('a,b'))).rejects.toMatchObject({ message: 'no' });
      expect(left()).toEqual([]);
      expect(findPod(one)).toBeUndefined();
    });
  });
});
