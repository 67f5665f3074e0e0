import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { CatenaConf, optionsOf } from '../../../plugins/catena/config.ts';
import { parseCniArgs, renderCniArgs } from '../../../src/cni/env.ts';
import { decode, type JsonObject } from '../../../src/cni/json.ts';
import { planNetworks } from '../../../src/delegate/plan.ts';
import { listWanted } from '../../../src/delegate/wanted.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-plan-'));
  network('storage');
  network('data', { capabilities: { ips: true, portMappings: true, mac: true } });
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

function network(name: string, plugin: object = {}): void {
  const list = { cniVersion: '1.0.0', name, plugins: [{ type: 'noop', ...plugin }] };
  fs.writeFileSync(path.join(dir, `${name}.conflist`), JSON.stringify(list));
}

const definitions = () => path.join(dir, 'definitions');

/** A definition that leaves the configuration to the file of that name, as most do. */
function define(namespace: string, name: string): void {
  fs.mkdirSync(definitions(), { recursive: true });
  const definition = { kind: 'NetworkAttachmentDefinition', metadata: { name, namespace } };
  fs.writeFileSync(path.join(definitions(), `${namespace}-${name}.json`), JSON.stringify(definition));
}

const PODS = { name: 'pods', plugins: [{ type: 'noop', capabilities: { portMappings: true } }] };
const NETWORKS = 'k8s.v1.cni.cncf.io/networks';
const DEFAULT = 'v1.multus-cni.io/default-network';

interface Asked {
  readonly conf?: JsonObject;
  readonly args?: string;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly runtimeConfig?: JsonObject;
}

async function plan({ conf = {}, args = '', annotations = {}, runtimeConfig = {} }: Asked) {
  const request = { type: 'catena', confDir: dir, delegates: [PODS], ...conf };
  const options = optionsOf(decode(CatenaConf, request, 'configuration'), 'outer', '1.1.0');
  const pod = {
    containerId: 'c1',
    netns: '/run/netns/x',
    ifname: 'eth0',
    args: parseCniArgs(args),
    capabilityArgs: { ...runtimeConfig, 'io.kubernetes.cri.pod-annotations': annotations },
  };
  return planNetworks(options, pod, listWanted(options, pod));
}

const shown = async (asked: Asked) =>
  (await plan(asked)).map(({ label, attachment }) => `${label} ${attachment.ifname}`);

describe('planNetworks()', () => {
  test.each<[string, Asked, string[]]>([
    ['the default network alone', {}, ['pods eth0']],
    [
      'delegates by configuration and by name',
      { conf: { delegates: [PODS, { name: 'storage' }, { name: 'data', ifname: 'd0' }] } },
      ['pods eth0', 'storage net1', 'data d0'],
    ],
    ['network before delegates', { conf: { network: 'data' } }, ['data eth0', 'pods net1']],
    ['clusterNetwork instead of delegates', { conf: { clusterNetwork: 'data' } }, ['data eth0']],
    [
      'everything in its order',
      {
        conf: { defaultNetworks: ['data'], networks: 'storage@s0' },
        args: 'IgnoreUnknown=1;CATENA_NETWORKS=storage,data@d9',
        annotations: { [NETWORKS]: 'data,storage' },
      },
      ['pods eth0', 'data net1', 'storage s0', 'storage net3', 'data d9', 'data net5', 'storage net6'],
    ],
    [
      'no defaultNetworks for pods of the system',
      { conf: { defaultNetworks: ['data'] }, args: 'K8S_POD_NAMESPACE=kube-system' },
      ['pods eth0'],
    ],
    [
      'a number that is taken is passed by',
      { annotations: { [NETWORKS]: 'data,storage,storage@net1' } },
      ['pods eth0', 'data net2', 'storage net3', 'storage net1'],
    ],
    [
      'another default network',
      { annotations: { [DEFAULT]: 'data', [NETWORKS]: 'storage' } },
      ['data eth0', 'storage net1'],
    ],
    ['another prefix', { conf: { interfacePrefix: 'lan', networks: 'data' } }, ['pods eth0', 'data lan1']],
  ])('%s', async (_, asked, expected) => {
    expect(await shown(asked)).toEqual(expected);
  });

  test.each<[string, Asked, number, string]>([
    [
      'no default network',
      { conf: { delegates: [] } },
      7,
      'it has no default network; set "delegates" or "network"',
    ],
    [
      'a further network that is not there',
      { annotations: { [NETWORKS]: 'gone' } },
      7,
      'Cannot find network "gone"',
    ],
    [
      'a default network that is not there yet',
      { conf: { network: 'gone' } },
      11,
      'Cannot find network "gone"',
    ],
    ['a directory without networks', { conf: { network: '/proc/self/fdinfo' } }, 11, 'it contains none'],
    [
      'two interfaces of one name',
      { conf: { networks: 'data@eth0' } },
      7,
      'Cannot name two interfaces "eth0"',
    ],
    [
      'another name for the first interface',
      { annotations: { [DEFAULT]: 'data@net0' } },
      7,
      'Cannot name the interface of the default network "net0": the runtime names it "eth0"',
    ],
    [
      'two default networks',
      { annotations: { [DEFAULT]: 'data,storage' } },
      7,
      'it names 2 networks, not one',
    ],
    [
      'itself',
      { conf: { delegates: [{ name: 'x', type: 'catena' }] } },
      7,
      'its plugin "catena" is the delegating plugin itself',
    ],
    [
      'a capability that no plugin has',
      {
        annotations: { [NETWORKS]: '[{"name":"storage","portMappings":[{"hostPort":1,"containerPort":1}]}]' },
      },
      7,
      'Cannot give "portMappings" to network "storage": none of its plugins ("noop") has that capability',
    ],
    [
      'a namespace of others',
      {
        conf: { namespaceIsolation: true },
        args: 'K8S_POD_NAMESPACE=a',
        annotations: { [NETWORKS]: 'b/data' },
      },
      7,
      'Cannot use network "b/data" in a pod of namespace "a": "namespaceIsolation" is set',
    ],
    [
      'a namespace of others for the default network',
      {
        conf: { namespaceIsolation: true },
        args: 'K8S_POD_NAMESPACE=a',
        annotations: { [DEFAULT]: 'b/data' },
      },
      7,
      'in a pod of namespace "a"',
    ],
    ...['storage', 'a/storage', '[{"name":"storage"}]', '[{"name":"storage","namespace":"a"}]'].map(
      (name): [string, Asked, number, string] => [
        `a file of the node that namespace "a" has no definition of, by ${name}`,
        {
          conf: { namespaceIsolation: true },
          args: 'K8S_POD_NAMESPACE=a',
          annotations: { [NETWORKS]: name },
        },
        7,
        'Cannot use network "a/storage" in a pod: there is no NetworkAttachmentDefinition of that name',
      ],
    ),
    [
      'the same by CNI_ARGS',
      { conf: { namespaceIsolation: true }, args: 'K8S_POD_NAMESPACE=a;CATENA_NETWORKS=storage' },
      7,
      'Cannot use network "a/storage" in a pod',
    ],
    [
      'the same as default network',
      {
        conf: { namespaceIsolation: true },
        args: 'K8S_POD_NAMESPACE=a',
        annotations: { [DEFAULT]: 'a/storage' },
      },
      7,
      'Cannot use network "a/storage" in a pod',
    ],
    [
      'the same as default network, in a namespace that is open to all',
      {
        conf: { namespaceIsolation: true },
        args: 'K8S_POD_NAMESPACE=a',
        annotations: { [DEFAULT]: 'default/storage' },
      },
      7,
      'Cannot use network "default/storage" in a pod',
    ],
  ])('refuses %s', async (_, asked, code, problem) => {
    await expect((async () => plan(asked))()).rejects.toMatchObject({
      code,
      message: expect.stringContaining(problem),
    });
  });

  test.each(['b', 'default'])('namespaceIsolation lets pods name definitions in %s', async namespace => {
    define(namespace, 'data');
    const conf = { namespaceIsolation: true, globalNamespaces: 'default, b', definitionsDir: definitions() };
    const annotations = { [NETWORKS]: `${namespace}/data` };
    expect(await shown({ conf, args: 'K8S_POD_NAMESPACE=a', annotations })).toEqual([
      'pods eth0',
      `${namespace}/data net1`,
    ]);
  });

  test('namespaceIsolation hides a file of the node that only another namespace has a definition of', async () => {
    define('infra', 'storage');
    const conf = { namespaceIsolation: true, definitionsDir: definitions() };
    const asked = (own: string, key: string, name: string) =>
      plan({ conf, args: `K8S_POD_NAMESPACE=${own}`, annotations: { [key]: name } });
    expect(await asked('infra', NETWORKS, 'storage')).toHaveLength(2);
    expect((await asked('infra', DEFAULT, 'infra/storage'))[0]?.label).toBe('infra/storage');
    for (const key of [NETWORKS, DEFAULT]) {
      for (const name of ['storage', 'evil/storage', 'infra/storage']) {
        await expect((async () => asked('evil', key, name))()).rejects.toMatchObject({ code: 7 });
      }
    }
  });

  test('namespaceIsolation applies to pods; every pod gets the networks of the configuration', async () => {
    const conf = { namespaceIsolation: true, networks: 'b/data', defaultNetworks: ['storage'] };
    expect(await shown({ conf, args: 'K8S_POD_NAMESPACE=a' })).toEqual([
      'pods eth0',
      'storage net1',
      'data net2',
    ]);
  });

  test("gives the runtime's capabilities to the default network", async () => {
    const runtimeConfig = { portMappings: [{ hostPort: 80 }] };
    const args = 'IgnoreUnknown=1;K8S_POD_NAME=p;IP=10.0.0.9;MAC=02:00:00:00:00:01';
    const [first, second] = await plan({ runtimeConfig, args, annotations: { [NETWORKS]: 'data' } });
    expect(first?.attachment.capabilityArgs).toMatchObject(runtimeConfig);
    expect(renderCniArgs(first?.attachment.args ?? [])).toBe(args);
    expect(second?.attachment.capabilityArgs).toEqual({});
    expect(renderCniArgs(second?.attachment.args ?? [])).toBe('IgnoreUnknown=1;K8S_POD_NAME=p');
  });

  test.each<[string, JsonObject, boolean]>([
    ['all', { runtimeConfigFor: 'all' }, true],
    ['those named', { runtimeConfigFor: ['data'] }, true],
    ['others', { runtimeConfigFor: ['storage'] }, false],
    ['one that asks for it', { networks: [{ name: 'data', runtimeConfig: true }] }, true],
  ])("gives the runtime's capabilities to %s", async (_, conf, gets) => {
    const runtimeConfig = { portMappings: [{ hostPort: 80 }] };
    const [, data] = await plan({ runtimeConfig, conf: { networks: 'data', ...conf } });
    expect('portMappings' in (data?.attachment.capabilityArgs ?? {})).toBe(gets);
  });

  test("passes a pod's request to its network by capability and by argument", async () => {
    const asked = {
      name: 'data',
      ips: ['10.9.0.5/24', 'fd09::5/64'],
      mac: '02:00:00:00:00:05',
      'cni-args': { hint: 1 },
    };
    const [, data] = await plan({ annotations: { [NETWORKS]: JSON.stringify([asked]) } });
    expect(data?.attachment.capabilityArgs).toEqual({ ips: asked.ips, mac: asked.mac });
    expect(renderCniArgs(data?.attachment.args ?? [])).toBe(
      'IgnoreUnknown=1;MAC=02:00:00:00:00:05;IP=10.9.0.5/24,fd09::5/64',
    );
    expect(data?.list.plugins[0]?.conf.args).toEqual({ cni: { hint: 1 } });
  });

  test('lets no pod choose a device, or anything else that a list says itself', async () => {
    const device = { [NETWORKS]: '[{"name":"nic","deviceID":"0000:01:00.0"}]' };
    for (const own of [{}, { pciBusID: '0000:03:00.1' }, { device: 'x' }]) {
      for (const capabilities of [{}, { deviceID: true }]) {
        network('nic', { ...own, capabilities });
        await expect(plan({ annotations: device })).rejects.toMatchObject({
          code: 7,
          message: expect.stringContaining(
            'pciBusID' in own || 'device' in own
              ? 'Cannot give "deviceID" of a pod to network "nic": its plugin "noop" has'
              : 'Cannot find a device for network "nic": the container is not a pod',
          ),
        });
      }
    }

    network('nic', { mac: '02:00:00:00:00:01' });
    await expect(
      plan({ annotations: { [NETWORKS]: '[{"name":"nic","mac":"02:00:00:00:00:02"}]' } }),
    ).rejects.toMatchObject({ code: 7, message: expect.stringContaining('has "mac" already') });

    network('nic', {
      mtu: 1400,
      ipam: { type: 'static', addresses: [{ address: '10.0.0.2/24' }] },
      args: { cni: { kept: 'list' } },
    });
    const asked = {
      kept: 'pod',
      MTU: 9000,
      ips: ['10.0.0.9/24'],
      ipſ: ['10.0.0.9/24'],
      \u212aept: 1,
      more: 'pod',
    };
    const annotations = { [NETWORKS]: JSON.stringify([{ name: 'nic', 'cni-args': asked }]) };
    expect((await plan({ annotations }))[1]?.list.plugins[0]?.conf.args).toEqual({
      cni: { kept: 'list', more: 'pod' },
    });
    // The configuration is not a pod.
    const conf = { networks: [{ name: 'nic', 'cni-args': { kept: 'runner' } }] };
    expect((await plan({ conf }))[1]?.list.plugins[0]?.conf.args).toEqual({ cni: { kept: 'runner' } });
  });

  test('takes a bounded number of networks from a pod, in annotation and arguments together', async () => {
    const many = (count: number) => Array(count).fill('data').join(',');
    expect(await plan({ annotations: { [NETWORKS]: many(64) } })).toHaveLength(65);
    const refused = (count: number, most: number) =>
      expect.objectContaining({
        code: 7,
        message: expect.stringContaining(`it names ${count} networks; a pod may ask for ${most} in all`),
      });
    for (const text of [many(50_000), JSON.stringify(Array(50_000).fill({ name: 'data' }).slice(0, 9_000))])
      await expect(plan({ annotations: { [NETWORKS]: text } })).rejects.toEqual(
        refused(text.startsWith('[') ? 9_000 : 50_000, 64),
      );
    const args = 'IgnoreUnknown=1;CATENA_NETWORKS=data,data';
    const conf = { maxNetworks: 3, networks: 'data,data,data,data' };
    expect(await plan({ args, conf, annotations: { [NETWORKS]: 'data' } })).toHaveLength(8);
    await expect(plan({ args, conf, annotations: { [NETWORKS]: 'data,data' } })).rejects.toEqual(
      refused(2, 1),
    );
    await expect(plan({ args, conf: { maxNetworks: 1 } })).rejects.toEqual(refused(2, 1));
  });

  test('passes a device of the configuration to every plugin and as a capability', async () => {
    const plugins = [{ type: 'sriov', deviceID: 'old' }, { type: 'rdma' }, { type: 'tuning' }];
    const list = { cniVersion: '1.0.0', name: 'data', plugins };
    fs.writeFileSync(path.join(dir, 'data.conflist'), JSON.stringify(list));
    const [, data] = await plan({ conf: { networks: [{ name: 'data', deviceID: '0000:01:00.0' }] } });
    const device = { deviceID: '0000:01:00.0', pciBusID: '0000:01:00.0' };
    expect(data?.list.plugins.map(({ conf }) => conf)).toEqual(
      plugins.map(({ type }) => expect.objectContaining({ type, ...device })),
    );
    expect(data?.attachment.capabilityArgs).toEqual({ deviceID: '0000:01:00.0' });
  });

  test('gives a configuration without name and version those of its list', async () => {
    const plugin = { type: 'noop' };
    const planned = await plan({
      conf: { delegates: [plugin, { plugins: [plugin] }, { name: 'x', cniVersion: '0.4.0', ...plugin }] },
    });
    expect(planned.map(({ list }) => `${list.name} ${list.version}`)).toEqual([
      'outer 1.1.0',
      'outer-1 1.1.0',
      'x 0.4.0',
    ]);
  });

  test('prefers a definition to a file, and uses the file for one without configuration', async () => {
    const definitionsDir = path.join(dir, 'definitions');
    fs.mkdirSync(definitionsDir);
    const write = (name: string, config: string) =>
      fs.writeFileSync(
        path.join(definitionsDir, `${name}.json`),
        JSON.stringify({
          kind: 'NetworkAttachmentDefinition',
          metadata: { name, namespace: 'ns' },
          spec: { config },
        }),
      );
    write('data', '{"cniVersion":"0.4.0","type":"noop"}');
    write('storage', '');
    const annotations = { [NETWORKS]: 'data,storage,other/data' };
    const planned = await plan({ conf: { definitionsDir }, args: 'K8S_POD_NAMESPACE=ns', annotations });
    expect(planned.map(({ label, list }) => `${label} ${list.name} ${list.version}`)).toEqual([
      'pods pods 1.1.0',
      'ns/data data 0.4.0',
      'ns/storage storage 1.0.0',
      'data data 1.0.0',
    ]);
  });
});
