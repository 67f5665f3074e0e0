// Do the networks of a running pod follow its annotation, whatever happens in between?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Daemon, startDaemonWith } from '../helpers/daemon.ts';
import { bringIntoLab } from '../helpers/into-lab.ts';
import { startKubelet } from '../helpers/kubelet.ts';
import { type ApiServer, startApiServer } from '../helpers/kubernetes.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const STATUS = 'k8s.v1.cni.cncf.io/network-status';
const NETWORKS = 'k8s.v1.cni.cncf.io/networks';
const ARGS = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=uid-1';
/** On a machine with other work. */
const SLOW = { withinMs: 60_000, everyMs: 100 };

/** Asks the pod that a machine has left to be quiet. */
const LEFT = 'catena.cni.cncf.io/machine-left';
/** Its answer. */
const QUIET = 'catena.cni.cncf.io/quiet-for';

interface Scene {
  readonly lab: Lab;
  readonly api: ApiServer;
  readonly pod: Container;
  readonly conf: Row;
  daemon(): Promise<Daemon>;
  call(command: string): ReturnType<Lab['plugin']>;
  annotate(networks: string): void;
  ifnames(): Promise<string[]>;
  /** Names in the published status. */
  published(): string[];
  /** Files of leases. */
  leases(): string[];
}

/** A chain with a bridge of its own. */
function bridged(lab: Lab, name: string, net: number, plugins: Row[] = []): Row {
  const ipam = { type: 'host-local', subnet: `10.${net}.0.0/24`, dataDir: `${lab.tmp}/leases` };
  const bridge = { type: 'bridge', bridge: `br-${name}`, isGateway: true, ipam };
  return { cniVersion: '1.1.0', name, plugins: [bridge, ...plugins] };
}

function withScene(body: (scene: Scene) => Promise<void>): Promise<void> {
  return withHost(async lab => {
    const api = await startApiServer(lab.tmp);
    const leave = await bringIntoLab(lab, Number(new URL(api.url).port));
    const pod = await lab.container();
    fs.mkdirSync(`${lab.tmp}/plugins`);
    const conf = {
      cniVersion: '1.1.0',
      name: 'pods',
      type: 'catena',
      kubeconfig: api.kubeconfig,
      kubernetesTimeout: 20,
      followAnnotations: true,
      kubeletDir: `${lab.tmp}/kubelet`,
      deviceInfoDir: `${lab.tmp}/devinfo`,
      binDir: [`${lab.tmp}/plugins`, BIN_DIR],
      delegates: [bridged(lab, 'main', 60)],
    };
    const annotate = (networks: string) =>
      api.addPod('ns', 'web', { annotations: { ...api.annotations('ns', 'web'), [NETWORKS]: networks } });
    const dir = `${lab.tmp}/leases`;
    try {
      for (const [name, net] of [
        ['blue', 61],
        ['red', 62],
      ] as const)
        api.addDefinition('ns', name, bridged(lab, name, net));
      await body({
        lab,
        api,
        pod,
        conf,
        annotate,
        daemon: () => startDaemonWith(lab, { env: { CATENA_NODE_NAME: 'node' } }),
        call: command => lab.plugin('catena', { command, conf, container: pod, args: ARGS }),
        ifnames: async () => (await lab.ip(pod, 'link')).map(({ ifname }) => ifname).sort(),
        published: () =>
          JSON.parse(api.annotations('ns', 'web')[STATUS] ?? '[]').map(
            (one: Row) => `${one.name} ${one.interface} ${one.ips}`,
          ),
        leases: () =>
          fs
            .readdirSync(dir)
            .sort()
            .flatMap(network => {
              const names = fs.readdirSync(`${dir}/${network}`);
              return names.filter(name => name.startsWith('10.')).map(name => `${network} ${name}`);
            }),
      });
    } finally {
      leave();
      await api.close();
    }
  });
}

/**
 * The two pods of a KubeVirt machine whose migration is in progress, and a neighbour on the link that they share.
 * @param isUnknown whether the node of the first says nothing, as one without daemon
 */
async function startMove({ lab, api, conf }: Scene, isUnknown = false) {
  const bridge = { type: 'bridge', bridge: 'br-vm', capabilities: { ips: true }, ipam: { type: 'static' } };
  const list = { cniVersion: '1.1.0', name: 'vm', plugins: [bridge] };
  api.addDefinition('ns', 'vm', list);
  const ips = ['10.66.0.5/24', 'fd66::5/64'];
  const annotations = {
    'kubevirt.io/domain': 'vm',
    [NETWORKS]: JSON.stringify([{ name: 'vm', interface: 'vm0', ips }]),
  };
  const labels = { 'kubevirt.io': 'virt-launcher', 'kubevirt.io/created-by': 'vmi-1' };
  const makePod = async (name: string, more: Row = {}) => {
    const container = await lab.container();
    const put = (further: Row = {}, status: Row = {}, asked: Row = {}) => {
      api.addPod('ns', name, {
        uid: `uid-${name}`,
        annotations: { ...annotations, ...api.annotations('ns', name), ...asked },
        labels: { ...labels, ...more, ...further },
      });
      const path = `/api/v1/namespaces/ns/pods/${name}`;
      api.collections.put(path, { ...api.objects.get(path), status });
    };
    put();
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${name};K8S_POD_UID=uid-${name}`;
    const call = (command: string) => lab.plugin('catena', { command, conf, container, args });
    const mac = async () => (await lab.ip(container, 'link', 'show', 'vm0'))[0]?.address;
    const isQuiet = async () =>
      (await lab.run(container, ['nft', 'list', 'tables'])).stdout.includes('catena-quiet');
    return { container, put, call, mac, isQuiet };
  };
  const neighbour = await lab.container();
  const join = (command: string, container: Container, addresses: string[]) => {
    const ipam = { type: 'static', addresses: addresses.map(address => ({ address })) };
    const own = { cniVersion: '1.1.0', name: 'vm', ...bridge, ipam };
    return lab.plugin('bridge', { command, conf: own, container, ifname: 'vm0' });
  };
  expect((await join('ADD', neighbour, ['10.66.0.9/24', 'fd66::9/64'])).exitCode).toBe(0);
  const source = await makePod('vm-1');
  const target = await makePod('vm-2', { 'kubevirt.io/migrationJobUID': 'job-1' });
  if (isUnknown) source.call = command => join(command, source.container, ips);
  expect(await source.call('ADD')).toMatchObject({ exitCode: 0 });
  /** Who answers for both addresses, as a neighbour learns that asks now. */
  const holders = async (asks: boolean) => {
    const macs = ips.map(async text => {
      const address = text.split('/')[0] ?? '';
      if (asks) await lab.run(neighbour, ['ip', 'neigh', 'flush', 'to', address]);
      if (asks) expect(await ping(lab, neighbour, address)).toBe(true);
      return (await lab.ip(neighbour, 'neigh', 'show', address))[0]?.lladdr;
    });
    return Promise.all(macs);
  };
  const learned = async () => {
    const { stdout } = await lab.run(lab.host, ['bridge', '-j', 'fdb', 'show', 'br', 'br-vm']);
    return JSON.parse(stdout).map(({ mac }: Row) => mac);
  };
  return { source, target, holders, learned };
}

/** Has the plugin "gate" wait in ADD as long as the file "closed" exists; the file "waiting" says that it does. */
function addGate({ lab, api }: Scene): void {
  const script = `#!${process.execPath}
import fs from 'node:fs';
const { prevResult } = await Bun.stdin.json();
if (process.env.CNI_COMMAND === 'ADD') {
  fs.writeFileSync('${lab.tmp}/waiting', '');
  while (fs.existsSync('${lab.tmp}/closed')) await Bun.sleep(50);
  console.log(JSON.stringify(prevResult));
}
`;
  fs.writeFileSync(`${lab.tmp}/plugins/gate`, script, { mode: 0o755 });
  fs.writeFileSync(`${lab.tmp}/closed`, '');
  api.addDefinition('ns', 'gated', bridged(lab, 'gated', 63, [{ type: 'gate' }]));
}

describeRoot(
  'networks by a changed annotation',
  () => {
    test('attaches what is new, detaches what is gone, reports what cannot be', async () => {
      await withScene(async scene => {
        const { lab, api, pod, annotate, ifnames, published } = scene;
        const daemon = await scene.daemon();
        annotate('blue');
        expect(await scene.call('ADD')).toMatchObject({ exitCode: 0 });
        expect(await ifnames()).toEqual(['eth0', 'lo', 'net1']);
        await until(() => api.collections.open === 2, SLOW);
        const [main] = await lab.ip(pod, 'link', 'show', 'eth0');

        annotate('blue,red');
        await until(() => published().length === 3, SLOW);
        expect(published()).toEqual([
          'main eth0 10.60.0.2',
          'ns/blue net1 10.61.0.2',
          'ns/red net2 10.62.0.2',
        ]);
        expect(await ping(lab, pod, '10.62.0.1')).toBe(true);
        expect(await scene.call('CHECK')).toMatchObject({ exitCode: 0 });

        // Two changes at once: the second one counts.
        annotate('red');
        annotate('red,blue@blue0');
        await until(() => published().join().endsWith('ns/blue blue0 10.61.0.3'), SLOW);
        expect(await ifnames()).toEqual(['blue0', 'eth0', 'lo', 'net2']);
        expect(await ping(lab, pod, '10.61.0.1')).toBe(true);
        expect(scene.leases()).toEqual(['blue 10.61.0.3', 'main 10.60.0.2', 'red 10.62.0.2']);

        const before = published();
        annotate('[{');
        const told = (about: string) => api.events('ns').filter(({ reason }) => reason === about);
        await until(() => told('NetworksNotChanged').length === 1, SLOW);
        annotate('red,blue@blue0,none');
        await until(() => told('NetworksNotChanged').length === 2, SLOW);
        expect(told('NetworksNotChanged')[1]).toMatchObject({
          message: expect.stringContaining('none'),
          involvedObject: { name: 'web' },
        });
        expect(told('AddedInterface').map(({ message }) => message)).toEqual([
          'Add eth0 [10.60.0.2] from main',
          'Add net1 [10.61.0.2] from ns/blue',
          'Add net2 [10.62.0.2] from ns/red',
          'Add blue0 [10.61.0.3] from ns/blue',
        ]);
        expect(published()).toEqual(before);
        expect(await ping(lab, pod, '10.62.0.1')).toBe(true);
        // It is tried again, and told once.
        api.addDefinition('ns', 'none', bridged(lab, 'none', 64));
        await until(() => published().length === 4, SLOW);
        expect(told('NetworksNotChanged')).toHaveLength(2);

        // What changes while the server is away counts when it is back.
        api.answer(503);
        api.collections.cut();
        annotate('blue@blue0');
        await Bun.sleep(300);
        expect(await ifnames()).toEqual(['blue0', 'eth0', 'lo', 'net1', 'net2']);
        api.collections.compact();
        api.answer(undefined);
        await until(() => published().length === 2, SLOW);
        expect(await ifnames()).toEqual(['blue0', 'eth0', 'lo']);
        expect((await lab.ip(pod, 'link', 'show', 'eth0'))[0]?.address).toBe(main?.address);

        expect(await scene.call('DEL')).toMatchObject({ exitCode: 0 });
        expect(await ifnames()).toEqual(['lo']);
        expect(scene.leases()).toEqual([]);
        expect(await daemon.stop()).toBe(0);
      });
    });

    test('a network that joins gets a device that no other network of the pod has, from the next daemon as well', async () => {
      await withScene(async scene => {
        const { lab, api, annotate } = scene;
        const kubelet = await startKubelet(`${lab.tmp}/kubelet`);
        kubelet.pods = [
          { name: 'web', containers: [{ 'example.com/net': ['n2'] }, { 'example.com/net': ['n1'] }] },
        ];
        fs.mkdirSync(`${lab.tmp}/devinfo/dp`, { recursive: true });
        for (const id of ['n1', 'n2']) {
          const file = `${lab.tmp}/devinfo/dp/example.com-net-${id}-device.json`;
          fs.writeFileSync(
            file,
            JSON.stringify({ type: 'pci', version: '1.1.0', pci: { 'pci-address': id } }),
          );
        }
        for (const [name, net] of Object.entries({ deva: 65, devb: 66, devc: 67 }))
          api.addDefinition('ns', name, bridged(lab, name, net), 'example.com/net');
        const devices = () =>
          JSON.parse(api.annotations('ns', 'web')[STATUS] ?? '[]')
            .slice(1)
            .map((one: Row) => `${one.name} ${one['device-info'].pci['pci-address']}`)
            .join();
        const daemon = await scene.daemon();
        annotate('deva');
        expect(await scene.call('ADD')).toMatchObject({ exitCode: 0 });
        expect(devices()).toBe('ns/deva n2');
        await until(() => api.collections.open === 2, SLOW);
        annotate('deva,devb');
        await until(() => devices() === 'ns/deva n2,ns/devb n1', SLOW);
        process.kill(daemon.pid, 'SIGKILL');
        await daemon.exited;
        annotate('devb');
        const next = await scene.daemon();
        await until(() => devices() === 'ns/devb n1', SLOW);
        annotate('devb,devc');
        await until(() => devices() === 'ns/devb n1,ns/devc n2', SLOW);
        annotate('devb,devc,deva');
        await until(() => api.events('ns').some(({ reason }) => reason === 'NetworksNotChanged'), SLOW);
        expect(devices()).toBe('ns/devb n1,ns/devc n2');
        expect(await scene.call('DEL')).toMatchObject({ exitCode: 0 });
        expect(fs.readdirSync(`${lab.tmp}/devinfo/cni`)).toEqual([]);
        expect(await next.stop()).toBe(0);
        kubelet.close();
      });
    });

    test('a daemon that is killed, and a DEL, in the middle of a change leave nothing half attached', async () => {
      await withScene(async scene => {
        const { lab, api, annotate, ifnames, published } = scene;
        addGate(scene);
        const daemon = await scene.daemon();
        annotate('blue');
        expect(await scene.call('ADD')).toMatchObject({ exitCode: 0 });
        await until(() => api.collections.open === 2, SLOW);
        annotate('gated@gate0');
        await until(() => fs.existsSync(`${lab.tmp}/waiting`), SLOW);
        expect(await ifnames()).toEqual(['eth0', 'gate0', 'lo']);
        process.kill(daemon.pid, 'SIGKILL');
        await daemon.exited;
        fs.rmSync(`${lab.tmp}/closed`);

        const next = await scene.daemon();
        await until(() => published().join().endsWith('ns/gated gate0 10.63.0.3'), SLOW);
        expect(published()).toHaveLength(2);
        expect(scene.leases()).toEqual(['gated 10.63.0.3', 'main 10.60.0.2']);

        // The DEL waits for the change, and deletes what it attached.
        await until(() => api.collections.open === 2, SLOW);
        fs.rmSync(`${lab.tmp}/waiting`);
        fs.writeFileSync(`${lab.tmp}/closed`, '');
        annotate('gated@gate1');
        await until(() => fs.existsSync(`${lab.tmp}/waiting`), SLOW);
        const deleted = scene.call('DEL');
        api.collections.remove('/api/v1/namespaces/ns/pods/web');
        await Bun.sleep(500);
        fs.rmSync(`${lab.tmp}/closed`);
        expect(await deleted).toMatchObject({ exitCode: 0 });
        expect(await ifnames()).toEqual(['lo']);
        expect(scene.leases()).toEqual([]);
        expect(await next.stop()).toBe(0);
      });
    });

    test('the pod to which a machine moves has its addresses, and is silent until the other pod has ended', async () => {
      await withScene(async scene => {
        const daemon = await scene.daemon();
        const { source, target, holders, learned } = await startMove(scene);
        const [old] = await Promise.all([source.mac()]);
        expect(await target.call('ADD')).toMatchObject({ exitCode: 0 });
        const [first, second] = [old, await target.mac()];
        expect(second).not.toBe(first);
        expect(await holders(true)).toEqual([first, first]);
        // No frame of it has reached the bridge.
        expect(await learned()).not.toContain(second);
        expect(await target.isQuiet()).toBe(true);
        expect(await source.call('DEL')).toMatchObject({ exitCode: 0 });
        source.put({}, { phase: 'Succeeded' });
        // Announced: the neighbour asks nothing.
        await until(async () => Bun.deepEquals(await holders(false), [second, second]), SLOW);
        expect(await holders(true)).toEqual([second, second]);
        await until(async () => !(await target.isQuiet()), SLOW);
        expect(await target.call('CHECK')).toMatchObject({ exitCode: 0 });
        expect(await target.call('DEL')).toMatchObject({ exitCode: 0 });
        expect(await daemon.stop()).toBe(0);
      });
    });

    test('it is not attached without a daemon: nothing would let it speak, and both would answer', async () => {
      await withScene(async scene => {
        const { lab } = scene;
        const { source, target, holders } = await startMove(scene);
        const mac = await source.mac();
        expect(await target.call('ADD')).toMatchObject({ exitCode: 1, error: { code: 11 } });
        expect((await lab.ip(target.container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        expect(await holders(true)).toEqual([mac, mac]);
      });
    });

    test('it speaks once it is told to be the active one, and nothing is left of one that fails', async () => {
      await withScene(async scene => {
        const { source, target, learned } = await startMove(scene);
        // Without a daemon nothing would let it speak.
        const daemon = await scene.daemon();
        expect(await target.call('ADD')).toMatchObject({ exitCode: 0 });
        expect(await target.isQuiet()).toBe(true);
        // The label of the machine, which the new pod may have, names the former node.
        target.put({ 'kubevirt.io/nodeName': 'former' });
        expect(await target.call('DEL')).toMatchObject({ exitCode: 0 });
        expect(await target.isQuiet()).toBe(false);
        expect(await target.call('ADD')).toMatchObject({ exitCode: 0 });
        // A call that the daemon declines is made by its client, which makes nothing quiet.
        expect([(await stateOf(daemon)).declined, await target.isQuiet()]).toEqual([{}, true]);
        expect(await learned()).not.toContain(await target.mac());
        target.put({ 'kubevirt.io/nodeName': 'node' });
        await until(() => LEFT in scene.api.annotations('ns', 'vm-1'), SLOW);
        // No daemon knows the former pod. As if it had been asked a minute ago.
        source.put({}, {}, { [LEFT]: `uid-vm-2 ${Date.now() - 61_000}` });
        await until(async () => !(await target.isQuiet()), SLOW);
        await until(async () => (await learned()).includes(await target.mac()), SLOW);
        expect(await daemon.stop()).toBe(0);
      });
    });

    test('it is silent as long as the former pod answers, whose node says nothing', async () => {
      await withScene(async scene => {
        const daemon = await scene.daemon();
        const { source, target, holders } = await startMove(scene, true);
        const first = await source.mac();
        expect(await target.call('ADD')).toMatchObject({ exitCode: 0 });
        target.put({ 'kubevirt.io/nodeName': 'node' });
        // It is asked, and not waited for alone.
        await until(async () => LEFT in scene.api.annotations('ns', 'vm-1'), SLOW);
        await Bun.sleep(7_000);
        expect(await target.isQuiet()).toBe(true);
        expect(await holders(true)).toEqual([first, first]);
        expect(await source.call('DEL')).toMatchObject({ exitCode: 0 });
        await until(async () => !(await target.isQuiet()), SLOW);
        const second = await target.mac();
        expect(await holders(true)).toEqual([second, second]);
        expect(await daemon.stop()).toBe(0);
      });
    });

    test('the former pod speaks again where the one that has asked for silence does not speak', async () => {
      await withScene(async scene => {
        const daemon = await scene.daemon();
        const { source, holders } = await startMove(scene);
        const mac = await source.mac();
        // Of a daemon that stands still since then.
        source.put({}, {}, { [LEFT]: `uid-vm-2 ${Date.now()}` });
        const answer = `"${QUIET}":"uid-vm-2"`;
        await until(() => scene.api.requests.some(({ body }) => body.includes(answer)), SLOW);
        await until(async () => !(LEFT in scene.api.annotations('ns', 'vm-1')), SLOW);
        expect(await source.isQuiet()).toBe(false);
        expect(await holders(true)).toEqual([mac, mac]);
        expect(await daemon.stop()).toBe(0);
      });
    });

    test('it speaks once the former pod is silent, which has the addresses until it ends', async () => {
      await withScene(async scene => {
        const daemon = await scene.daemon();
        const { source, target, holders } = await startMove(scene);
        expect(await target.call('ADD')).toMatchObject({ exitCode: 0 });
        target.put({ 'kubevirt.io/nodeName': 'node' });
        await until(async () => !(await target.isQuiet()), SLOW);
        expect(await source.isQuiet()).toBe(true);
        const mac = await target.mac();
        expect(await holders(true)).toEqual([mac, mac]);
        expect(await source.call('DEL')).toMatchObject({ exitCode: 0 });
        expect(await source.isQuiet()).toBe(false);
        expect(await daemon.stop()).toBe(0);
      });
    });
  },
  requires('openssl', 'ss'),
);
