// Does catena take multus's place, and give it back, while pods run? Multus is played by the test; its plugins are the reference's.
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { run, TEST_PATH } from '../helpers/command.ts';
import { type ApiServer, startApiServer } from '../helpers/kubernetes.ts';
import { type Multus, multusAdd, multusDel } from '../helpers/multus.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeNeeding, requires, requiresReference, requiresRoot } from '../helpers/skip.ts';

const NETWORKS = 'k8s.v1.cni.cncf.io/networks';
const SKELETON = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };

function bridged(lab: Lab, name: string, net: number): Row {
  const ipam = { type: 'host-local', subnet: `10.${net}.0.0/24`, dataDir: `${lab.tmp}/leases` };
  return {
    cniVersion: '1.0.0',
    name,
    plugins: [{ type: 'bridge', bridge: `br-${name}`, isGateway: true, ipam }],
  };
}

/** A node with multus, and its cluster. */
async function withMultus(
  body: (node: {
    lab: Lab;
    api: ApiServer;
    multus: Multus;
    confDir: string;
    networks: Row[];
  }) => Promise<void>,
): Promise<void> {
  await withHost(async lab => {
    const api = await startApiServer(lab.tmp);
    const multus = { lab, cniDir: `${lab.tmp}/multus` };
    const confDir = `${lab.tmp}/net.d`;
    const networks = [bridged(lab, 'pods', 61), bridged(lab, 'lan', 62)];
    fs.mkdirSync(confDir, { recursive: true });
    const list = {
      cniVersion: '1.0.0',
      name: 'multus-cni-network',
      type: 'multus',
      kubeconfig: api.kubeconfig,
      cniDir: multus.cniDir,
      binDir: REFERENCE_BIN_DIR,
      capabilities: { 'io.kubernetes.cri.pod-annotations': true },
      delegates: [networks[0]],
    };
    fs.writeFileSync(`${confDir}/00-multus.conf`, JSON.stringify(list));
    api.addDefinition('ns', 'lan', networks[1] as Row);
    try {
      await body({ lab, api, multus, confDir, networks });
    } finally {
      await api.close();
    }
  });
}

function print(lab: Lab, confDir: string, ...more: string[]) {
  const env = { PATH: TEST_PATH, ...directories(lab.tmp) };
  const argv = ['install', '--print', 'switch-from-multus', '--conf-dir', confDir, ...more];
  return run([`${BIN_DIR}/catena`, ...argv], { env });
}

/** What the command prints: its comments, the objects, and the list. */
async function printed(lab: Lab, confDir: string, ...more: string[]) {
  const { exitCode, stdout, stderr } = await print(lab, confDir, ...more);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  const objects = stdout.split(/^---$/m).map(text => Bun.YAML.parse(text) as Row);
  const map = objects.find(({ kind }) => kind === 'ConfigMap') as Row;
  const set = objects.find(({ kind }) => kind === 'DaemonSet') as Row;
  const [install] = set.spec.template.spec.initContainers;
  const confName = install.args[install.args.indexOf('--conf-name') + 1];
  return { text: stdout, list: JSON.parse(map.data['network.conflist']), confName };
}

describeNeeding(
  'a switch from multus',
  () => {
    test('keeps what pods have, deletes pods of either by either, and loses no packet', async () => {
      await withMultus(async ({ lab, api, multus, confDir, networks }) => {
        const [stays, goes, late] = [await lab.container(), await lab.container(), await lab.container()];
        const before = await lab.dump(lab.host, SKELETON);
        for (const pod of [stays, goes]) await multusAdd(multus, pod, networks);
        api.addPod('ns', 'stays', { annotations: { [NETWORKS]: 'lan' } });
        const pinging = ['10.61.0.1', '10.62.0.1'].map(address =>
          lab.start(stays, ['ping', '-q', '-i', '0.02', address]),
        );
        const { list, confName, text } = await printed(lab, confDir);
        expect(text).toContain('# What will differ');
        expect(text).toContain('2 containers of this node that multus attached');
        expect(`${confName}` < '00-multus.conf').toBe(true);
        fs.writeFileSync(`${confDir}/${confName}`, JSON.stringify(list));

        // The cluster is beyond the lab's host: the runtime passes annotations, and a directory has the definitions.
        const [{ kubeconfig: _, ...entry }] = list.plugins;
        const object = { kind: 'NetworkAttachmentDefinition', metadata: { name: 'lan', namespace: 'ns' } };
        fs.mkdirSync(`${lab.tmp}/definitions`);
        fs.writeFileSync(
          `${lab.tmp}/definitions/lan.json`,
          JSON.stringify({ ...object, spec: { config: JSON.stringify(networks[1]) } }),
        );
        const conf = {
          ...{
            cniVersion: list.cniVersion,
            name: list.name,
            ...entry,
            definitionsDir: `${lab.tmp}/definitions`,
          },
          runtimeConfig: { 'io.kubernetes.cri.pod-annotations': { [NETWORKS]: 'lan' } },
        };
        const call = (command: string, container?: Container, more: Row = {}) =>
          lab.plugin('catena', {
            command,
            conf: { ...conf, ...more },
            ...(container ? { container } : {}),
            args: 'IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=late',
          });
        const added = await call('ADD', late);
        expect(added).toMatchObject({ exitCode: 0 });
        expect(added.result.ips[0].address).toBe('10.61.0.4/24');
        expect(await call('CHECK', stays, { prevResult: added.result })).toMatchObject({ exitCode: 0 });
        expect(await call('DEL', goes)).toMatchObject({ exitCode: 0, stdout: '' });
        const leases = () => fs.readdirSync(`${lab.tmp}/leases/pods`).filter(name => name.startsWith('10.'));
        expect(leases().sort()).toEqual(['10.61.0.2', '10.61.0.4']);

        // Back: multus finds the pod of catena, and its own.
        fs.rmSync(`${confDir}/${confName}`);
        expect(await multusDel(multus, late)).toEqual(['pods', 'ns/lan']);
        expect(leases()).toEqual(['10.61.0.2']);
        for (const ping of pinging) {
          ping.kill('SIGINT');
          expect(await ping.stdout.text()).toMatch(/ 0% packet loss/);
        }
        expect(await multusDel(multus, stays)).toEqual(['pods', 'lan']);
        expect(leases()).toEqual([]);
        for (const bridge of ['br-pods', 'br-lan']) await lab.ip(lab.host, 'link', 'delete', bridge);
        expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
        expect(fs.readdirSync(multus.cniDir).filter(name => name !== 'results')).toEqual([]);
      });
    });

    test('says what differs in a cluster whose multus has a daemon, and asks no object to be edited', async () => {
      await withMultus(async ({ lab, api, confDir, networks }) => {
        // As multus's daemon writes it, with the ConfigMap of its manifest.
        const list = {
          cniVersion: '0.3.1',
          name: 'multus-cni-network',
          type: 'multus-shim',
          clusterNetwork: `/host${lab.tmp}/10-pods.conflist`,
          capabilities: { portMappings: true },
        };
        const daemon = {
          chrootDir: '/hostroot',
          socketDir: '/host/run/multus/',
          readinessindicatorfile: '/host/run/ready',
        };
        fs.writeFileSync(`${confDir}/00-multus.conf`, JSON.stringify(list));
        fs.writeFileSync(`${lab.tmp}/10-pods.conflist`, JSON.stringify(networks[0]));
        const at = (path: string, object: Row) => api.collections.put(path, object);
        at('/api/v1/namespaces/kube-system/configmaps/multus-daemon-config', {
          data: { 'daemon-config.json': JSON.stringify(daemon) },
        });
        const named = (namespace: string, name: string) => ({ metadata: { namespace, name } });
        at('/apis/apps/v1/namespaces/kube-system/daemonsets/kube-multus-ds', {
          ...named('kube-system', 'kube-multus-ds'),
          spec: {
            template: { spec: { containers: [{ command: ['/usr/src/multus-cni/bin/multus-daemon'] }] } },
          },
        });
        at('/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools/10.9.0.0-16', {
          ...named('kube-system', '10.9.0.0-16'),
          spec: { range: '10.9.0.0/16', allocations: { 1: { id: 'a' }, 2: { id: 'b' } } },
        });
        const ports = { type: 'portmap', capabilities: { portMappings: true } };
        api.addDefinition('ns', 'ports', {
          ...networks[1],
          plugins: [...(networks[1]?.plugins ?? []), ports],
        });
        api.addDefinition('ns', 'torn', '{');
        api.addPod('ns', 'fits', { annotations: { [NETWORKS]: 'lan@lan0' } });
        const rated = [{ name: 'lan', bandwidth: { ingressRate: 1000 } }];
        api.addPod('ns', 'rated', { annotations: { [NETWORKS]: JSON.stringify(rated) } });
        api.addPod('ns', 'device', {
          annotations: { [NETWORKS]: '[{"name": "lan", "deviceID": "0000:00:1"}]' },
        });
        api.addPod('ns', 'rogue', { annotations: { [NETWORKS]: '[\n---\nkind: Rogue\n' } });
        api.addPod('ns', 'ended', { annotations: { [NETWORKS]: 'none' } });
        const ended = '/api/v1/namespaces/ns/pods/ended';
        at(ended, { ...(api.objects.get(ended) as Row), status: { phase: 'Succeeded' } });

        const { text, list: own, confName } = await printed(lab, confDir, '--kubeconfig', api.kubeconfig);
        expect(confName).toBe('00-multus-catena.conflist');
        expect(own).toMatchObject({ name: 'multus-cni-network', cniVersion: '0.3.1' });
        expect(own.plugins).toEqual([
          {
            type: 'catena',
            clusterNetwork: `${lab.tmp}/10-pods.conflist`,
            capabilities: { portMappings: true },
            readinessindicatorfile: '/run/ready',
            kubeconfig: `${confDir}/catena.d/kubeconfig`,
            confDir: '/etc/cni/multus/net.d',
            cniDir: '/var/lib/cni/multus',
          },
        ]);
        for (const line of [
          '3 NetworkAttachmentDefinitions, 4 pods that name networks',
          'pools of whereabouts: 10.9.0.0-16 (2 in use); they stay as they are',
          'DaemonSet kube-system/kube-multus-ds',
          'catena will refuse it: ns/rated: Cannot give "bandwidth" to network "lan": none of its plugins',
          'no pod can use this definition, with either: ns/torn: ',
          '(portMappings) is for the default network; multus gives it to ns/ports as well',
          'only if the kubelet gave it to the pod: ns/device',
          'until /run/ready exists, a pod is refused at once with code 11',
          'nothing to say here: socketDir',
          'and not before: kubectl delete -n kube-system daemonset/kube-multus-ds',
          '"--force","--keep-daemon","--plugin","multus-shim"',
        ])
          expect([line, text.includes(line)]).toEqual([line, true]);
        expect(text).toMatch(/^# .* ns\/rogue: .*kind: Rogue/m);
        expect(text).not.toMatch(/^kind: Rogue/m);
        expect(text).not.toContain('ns/fits');
        expect(text).not.toContain('ns/ended');
        expect(api.requests.every(({ method }) => method === 'GET')).toBe(true);
      });
    });

    test.each<[string, (confDir: string, api: ApiServer) => void, RegExp]>([
      [
        'no list of multus',
        dir => fs.rmSync(`${dir}/00-multus.conf`),
        /no file of ".*" calls a plugin of type multus/,
      ],
      ['a torn one', dir => fs.writeFileSync(`${dir}/00-multus.conf`, '{'), /00-multus.conf.*expected/s],
      [
        'a key of another type',
        dir => fs.writeFileSync(`${dir}/00-multus.conf`, '{"name":"m","type":"multus","delegates":7}'),
        /"delegates" must be of type array/,
      ],
      ['a cluster that does not answer', (_, api) => api.answer(503), /Cannot use the Kubernetes API/],
    ])('with %s prints nothing but the reason', async (_, damage, reason) => {
      await withMultus(async ({ lab, api, confDir }) => {
        damage(confDir, api);
        const { exitCode, stdout, stderr } = await print(lab, confDir);
        expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
        expect(stderr).toMatch(reason);
      });
    });
  },
  requiresRoot(),
  requiresReference('bridge'),
  requires('openssl'),
);
