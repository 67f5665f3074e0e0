// Does the delegate runner, as it is compiled, get on with the API of a cluster, and without it when it is away?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { run, TEST_PATH } from '../helpers/command.ts';
import { startKubelet } from '../helpers/kubelet.ts';
import { type ApiServer, startApiServer } from '../helpers/kubernetes.ts';
import { wholeLines } from '../helpers/lines.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { FIXTURE_PLUGINS, type Recorded, readCalls } from '../helpers/noop-chain.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const STATUS = 'k8s.v1.cni.cncf.io/network-status';
/** Its name of before. */
const OLD_STATUS = 'k8s.v1.cni.cncf.io/networks-status';
const NETWORKS = 'k8s.v1.cni.cncf.io/networks';
const ARGS = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=uid-1';

interface Node {
  readonly lab: Lab;
  readonly api: ApiServer;
  readonly container: Container;
  /** Calls the runner; its networks follow a script. */
  call(
    command: string,
    more?: Row,
    args?: string,
  ): Promise<{ exitCode: number; reply: Row; order: string[] }>;
  /** What the last ADD of a link had. */
  last(): { args: string; runtimeConfig: Row; request: Row };
  /** The link of a network that reports an interface with that address. */
  link(label: string, ifname: string, address: string): Row;
}

function withNode(body: (node: Node) => Promise<void>): Promise<void> {
  return withHost(async lab => {
    const container = await lab.container();
    const api = await startApiServer(lab.tmp);
    const log = `${lab.tmp}/calls`;
    const order = () => readCalls(log).map(({ command, request }) => `${command} ${request.label}`);
    const last: Node['last'] = () => {
      // The watch of a daemon may check after it what was added.
      const { env, request } = readCalls(log).findLast(({ command }) => command === 'ADD') as Recorded;
      return { args: env.CNI_ARGS ?? '', runtimeConfig: request.runtimeConfig as Row, request };
    };
    const link: Node['link'] = (label, ifname, address) => {
      const interfaces = [{ name: ifname, sandbox: container.path }];
      const result = { cniVersion: '1.1.0', interfaces, ips: [{ address, interface: 0 }] };
      fs.writeFileSync(`${lab.tmp}/${label}.json`, JSON.stringify({ ReportResult: result }));
      return {
        cniVersion: '1.1.0',
        type: 'noop',
        label,
        debugFile: `${lab.tmp}/${label}.json`,
        commandLog: log,
      };
    };
    const call: Node['call'] = async (command, more = {}, args = ARGS) => {
      const conf = {
        cniVersion: '1.1.0',
        name: 'pods',
        type: 'catena',
        kubeconfig: api.kubeconfig,
        kubernetesTimeout: 5,
        delegates: [{ name: 'default', ...link('default', 'eth0', '10.1.0.2/24') }],
        ...more,
      };
      const env = {
        PATH: TEST_PATH,
        ...directories(lab.tmp),
        CNI_COMMAND: command,
        CNI_PATH: FIXTURE_PLUGINS,
        CNI_CONTAINERID: container.id,
        CNI_NETNS: container.path,
        CNI_IFNAME: 'eth0',
        CNI_ARGS: args,
      };
      // The fixtures touch no kernel: this runs where the API server is.
      const { exitCode, stdout } = await run([`${BIN_DIR}/catena`], { env, stdin: JSON.stringify(conf) });
      return { exitCode, reply: JSON.parse(stdout || '{}'), order: order() };
    };
    try {
      await body({ lab, api, container, call, last, link });
    } finally {
      await api.close();
    }
  });
}

/** The events of the pod, in their order. */
function toldOf(api: ApiServer): string[] {
  return api.events('ns').map(({ type, reason, message }) => `${type} ${reason}: ${message}`);
}

/** Runs a daemon where the runner is called, while the body works. */
async function withDaemon({ lab }: Node, body: (pid: number) => Promise<void>): Promise<void> {
  const dirs = directories(lab.tmp);
  const child = Bun.spawn([`${BIN_DIR}/catena`, 'daemon', '--log', `file:${lab.tmp}/daemon.log`], {
    env: { PATH: TEST_PATH, ...dirs, CATENA_NODE_NAME: 'node' },
    stdio: ['ignore', 'ignore', 'ignore'],
  });
  try {
    await until(() => fs.existsSync(`${dirs.CATENA_RUN_DIR}/catena.sock`));
    await body(child.pid);
  } finally {
    child.kill('SIGTERM');
    expect(await child.exited).toBe(0);
  }
}

describeRoot(
  'the delegate runner with a cluster',
  () => {
    test('reads the pod and its definitions, and reports the networks of the pod', async () => {
      await withNode(async ({ api, call, link }) => {
        api.addPod('ns', 'web', { annotations: { [NETWORKS]: 'lan@lan0' } });
        api.addDefinition('ns', 'lan', link('lan', 'lan0', '10.2.0.2/24'));
        const { exitCode, reply, order } = await call('ADD');
        expect({ exitCode, order }).toEqual({ exitCode: 0, order: ['ADD default', 'ADD lan'] });
        expect(reply.ips).toEqual([{ address: '10.1.0.2/24', interface: 0 }]);
        expect(JSON.parse(api.annotations('ns', 'web')[STATUS])).toEqual([
          { name: 'default', interface: 'eth0', ips: ['10.1.0.2'], default: true, dns: {} },
          { name: 'ns/lan', interface: 'lan0', ips: ['10.2.0.2'], dns: {} },
        ]);
        expect(api.annotations('ns', 'web')[OLD_STATUS]).toEqual(api.annotations('ns', 'web')[STATUS]);
        const methods = () => api.requests.map(({ method }) => method).sort();
        expect(methods()).toEqual(['GET', 'GET', 'PATCH', 'POST', 'POST']);
        expect(toldOf(api)).toEqual([
          'Normal AddedInterface: Add eth0 [10.1.0.2] from default',
          'Normal AddedInterface: Add lan0 [10.2.0.2] from ns/lan',
        ]);

        // Whatever has become of the cluster.
        api.answer(500);
        expect(await call('CHECK')).toMatchObject({ exitCode: 0 });
        const gone = await call('DEL', { kubeconfig: '/nowhere' });
        expect(gone).toMatchObject({ exitCode: 0 });
        expect(gone.order.slice(-2)).toEqual(['DEL lan', 'DEL default']);
        expect(api.requests).toHaveLength(5);
      });
    });

    test('requests no pod whose annotations the runtime has passed', async () => {
      await withNode(async ({ api, call, link }) => {
        api.addPod('ns', 'web', {});
        api.addDefinition('other', 'lan', link('lan', 'net1', '10.2.0.2/24'));
        const runtimeConfig = { 'io.kubernetes.cri.pod-annotations': { [NETWORKS]: 'other/lan' } };
        expect(await call('ADD', { runtimeConfig })).toMatchObject({ exitCode: 0 });
        const paths = api.requests.filter(({ method }) => method !== 'POST').map(({ path }) => path);
        expect(paths.map(path => path.split('/').slice(-2).join('/'))).toEqual([
          'network-attachment-definitions/lan',
          'web/status',
        ]);
      });
    });

    test.each<[string, (api: ApiServer) => void, number]>([
      ['cannot be reached', api => api.answer(503), 11],
      ['does not know the pod', () => {}, 11],
      ['knows another pod of that name', api => api.addPod('ns', 'web', { uid: 'uid-2' }), 11],
    ])('ADD begins nothing when the cluster %s', async (_, prepare, code) => {
      await withNode(async ({ api, call }) => {
        prepare(api);
        const { exitCode, reply, order } = await call('ADD');
        expect({ exitCode, code: reply.code, order }).toEqual({ exitCode: 1, code, order: [] });
        expect(await call('DEL')).toMatchObject({ exitCode: 0 });
      });
    });

    test('needs no request for pods and definitions in a daemon that watches the cluster', async () => {
      await withNode(async node => {
        const { api, call, link, lab } = node;
        await withDaemon(node, async () => {
          api.addPod('ns', 'web', { annotations: { [NETWORKS]: 'lan@lan0' } });
          api.addDefinition('ns', 'lan', link('lan', 'lan0', '10.2.0.2/24'));
          const again = async () => {
            const before = api.requests.length;
            const { exitCode, order } = await call('ADD');
            const asked = api.requests
              .slice(before)
              .filter(({ method }) => method !== 'POST')
              .map(({ method, path }) => `${method} ${path}`);
            expect(await call('DEL')).toMatchObject({ exitCode: 0 });
            // The watch of this daemon may check between them what was added.
            const added = order.filter(one => one.startsWith('ADD ')).slice(-2);
            return { exitCode, asked, order: added };
          };
          // The first call reads, and has the watches begin.
          expect(await again()).toMatchObject({ exitCode: 0, order: ['ADD default', 'ADD lan'] });
          await until(() => api.collections.open === 2);
          const told = ['PATCH /api/v1/namespaces/ns/pods/web/status'];
          expect(await again()).toEqual({ exitCode: 0, asked: told, order: ['ADD default', 'ADD lan'] });

          api.addDefinition('ns', 'lan', link('changed', 'lan0', '10.2.0.3/24'));
          api.addPod('ns', 'web', { annotations: { [NETWORKS]: 'lan@lan0,lan@lan1' } });
          await until(async () => {
            const { asked, order } = await again();
            return asked.join() === told.join() && order.join() === 'ADD changed,ADD changed';
          });

          // Another pod of the same name is not the one that is known.
          api.addPod('ns', 'web', { uid: 'uid-2' });
          await until(async () => (await call('ADD')).reply.code === 11);

          api.answer(503);
          api.collections.cut();
          expect((await call('ADD')).reply.code).toBe(11);
          expect(await call('DEL')).toMatchObject({ exitCode: 0 });
          await until(() =>
            wholeLines(`${lab.tmp}/daemon.log`).some(line => line.includes('cannot watch a cluster')),
          );
        });
      });
    });

    test('requests the addresses that a claim holds from the network, in a daemon as well', async () => {
      await withNode(async node => {
        const { api, call, link } = node;
        const lan = [{ name: 'lan', interface: 'lan0', 'ipam-claim-reference': 'vm' }];
        api.addPod('ns', 'web', { annotations: { [NETWORKS]: JSON.stringify(lan) } });
        api.addDefinition('ns', 'lan', {
          ...link('lan', 'lan0', '10.2.0.2/24'),
          capabilities: { ips: true },
        });
        api.addClaim('ns', 'vm', { spec: { network: 'lan', interface: 'lan0' } });
        expect(await call('ADD')).toMatchObject({ exitCode: 0 });
        expect(await call('DEL')).toMatchObject({ exitCode: 0 });
        expect(api.claimed('ns', 'vm')).toEqual(['10.2.0.2/24']);

        api.addClaim('ns', 'vm', { status: { ips: ['10.2.0.9/24'] } });
        await withDaemon(node, async () => {
          expect(await call('ADD')).toMatchObject({ exitCode: 0 });
          const { args, runtimeConfig } = node.last();
          expect({ args, runtimeConfig }).toEqual({
            args: expect.stringContaining('IP=10.2.0.9/24'),
            runtimeConfig: { ips: ['10.2.0.9/24'] },
          });
          expect(await call('DEL')).toMatchObject({ exitCode: 0 });
        });
        expect(api.claimed('ns', 'vm')).toEqual(['10.2.0.9/24']);
      });
    });

    test('gives networks the devices that the kubelet gave the pod, in a daemon as well', async () => {
      await withNode(async node => {
        const { api, call, link, lab } = node;
        const kubelet = await startKubelet(`${lab.tmp}/kubelet`);
        kubelet.pods = [
          { name: 'web', containers: [{ 'example.com/net': ['n2'] }, { 'example.com/net': ['n1'] }] },
        ];
        const more = { kubeletDir: kubelet.dir };
        const resource = 'example.com/net';
        const lan = { ...link('lan', 'lan0', '10.2.0.2/24'), capabilities: { deviceID: true } };
        const both = async () => {
          expect(await call('ADD', more)).toMatchObject({ exitCode: 0 });
          const { request } = node.last();
          expect([request.deviceID, request.runtimeConfig]).toEqual(['n1', { deviceID: 'n1' }]);
          expect(await call('DEL', more)).toMatchObject({ exitCode: 0 });
        };
        try {
          api.addPod('ns', 'web', { annotations: { [NETWORKS]: 'lan@lan0,lan@lan1' } });
          api.addDefinition('ns', 'lan', lan, resource);
          await both();
          await withDaemon(node, async () => {
            await both();
            await until(() => api.collections.open === 2);
            await both();
            kubelet.kill();
            const { exitCode, reply } = await call('ADD', more);
            expect({ exitCode, code: reply.code }).toEqual({ exitCode: 1, code: 11 });
            expect(reply.msg).toStartWith(
              'Cannot find the devices of pod "ns/web": the kubelet did not answer',
            );
            await kubelet.serve();
            await both();
          });
        } finally {
          kubelet.close();
        }
      });
    });

    test('attaches a static pod, whose uid in the cluster is another one', async () => {
      await withNode(async ({ api, call }) => {
        api.addPod('ns', 'web', { uid: 'uid-2', annotations: { 'kubernetes.io/config.source': 'file' } });
        expect(await call('ADD')).toMatchObject({ exitCode: 0 });
      });
    });

    test('tells of a failed ADD in the words of its error, once, and fails for no event', async () => {
      await withNode(async ({ lab, api, call, link }) => {
        api.addPod('ns', 'web', { annotations: { [NETWORKS]: 'lan' } });
        for (let tries = 0; tries < 2; tries++) expect((await call('ADD')).reply.code).toBe(7);
        const [missing, ...more] = toldOf(api);
        expect(missing).toStartWith(
          'Warning NetworksNotAdded: Cannot use network "ns/lan" in a pod: there is no',
        );
        expect(more).toEqual([]);
        api.addDefinition('ns', 'lan', '');
        expect((await call('ADD')).reply.code).toBe(7);
        expect(toldOf(api).at(-1)).toStartWith('Warning NoNetworkFound: Cannot find network "lan"');
        api.addDefinition('ns', 'lan', link('lan', 'lan0', '10.2.0.2/24'));
        fs.writeFileSync(
          `${lab.tmp}/lan.json`,
          JSON.stringify({ ReportError: 'no room', ReportErrorCode: 112 }),
        );
        expect((await call('ADD')).exitCode).toBe(1);
        expect(toldOf(api).at(-1)).toStartWith('Warning NetworksNotAdded: no room');
        expect(await call('DEL')).toBeTruthy();
        link('lan', 'lan0', '10.2.0.2/24');
        api.refuseEvents = true;
        expect(await call('ADD')).toMatchObject({ exitCode: 0 });
      });
    });

    test('undoes the ADD when the status cannot be written', async () => {
      await withNode(async ({ call }) => {
        const runtimeConfig = { 'io.kubernetes.cri.pod-annotations': {} };
        const { exitCode, reply, order } = await call('ADD', { runtimeConfig });
        expect({ exitCode, code: reply.code, order }).toEqual({
          exitCode: 1,
          code: 3,
          order: ['ADD default', 'DEL default'],
        });
      });
    });

    test('attaches the default network without the cluster if it has a file, else from the cluster', async () => {
      await withNode(async ({ lab, api, call, link }) => {
        const confDir = `${lab.tmp}/net.d`;
        fs.mkdirSync(confDir);
        const file = `${confDir}/main.conf`;
        fs.writeFileSync(file, JSON.stringify({ name: 'main', ...link('file', 'eth0', '10.3.0.2/24') }));
        api.answer(503);
        // Outside of Kubernetes there is no pod to ask for.
        const more = { confDir, network: 'main', delegates: [] };
        expect(await call('ADD', more, '')).toMatchObject({ exitCode: 0, order: ['ADD file'] });
        expect(await call('DEL', more, '')).toMatchObject({ exitCode: 0 });
        expect(api.requests).toEqual([]);
        fs.rmSync(file);
        expect((await call('ADD', more, '')).reply.code).toBe(11);
        api.answer(undefined);
        api.addDefinition('kube-system', 'main', link('cluster', 'eth0', '10.4.0.2/24'));
        expect((await call('ADD', more, '')).order.at(-1)).toBe('ADD cluster');
      });
    });
  },
  requires('openssl'),
);
