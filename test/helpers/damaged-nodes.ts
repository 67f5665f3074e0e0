// How does each runtime get a node that is then damaged: a container with port 8080, and a neighbour on a bridge of its own?
import { expect } from 'bun:test';
import { type ContainerdNode, withContainerd } from './containerd.ts';
import type { Cri, Pod } from './cri.ts';
import { quietList, shopList } from './damage-scenes.ts';
import { type Machine, withMachine } from './machine.ts';
import type { Namespace, Outside, Row } from './netns.ts';
import { type Maker, tightList } from './node-damage.ts';
import { type Podman, startPodman } from './podman.ts';
import { PUBLISHED } from './published.ts';

/** A container that runs. */
export interface Running {
  readonly id: string;
  readonly netns: Namespace;
}

/** A node before it is damaged. */
export interface WholeNode {
  readonly machine: Machine;
  readonly outside: Outside;
  /** Name of the file of the list `shop`. */
  readonly file: string;
  readonly web: Running;
  /** The neighbour's address in the network that is not damaged. */
  readonly peer: { readonly netns: Namespace; readonly address: string };
  /** Deletes the container with the port, and makes it again. */
  remake(): Promise<Running>;
  /** Of the neighbour, if it is attached to the damaged network, too. */
  remakePeer?(): Promise<void>;
  readonly maker?: Maker;
}

/** Runs the body on a node; afterwards nothing of its containers is left. */
export type WithNode = (body: (node: WholeNode) => Promise<void>) => Promise<void>;

const CATENA = '/opt/cni/bin/catena';
const PORTS = { portMappings: PUBLISHED };

/** Our own runner: containers are namespaces. */
export const onCatena: WithNode = body =>
  withMachine(async machine => {
    const outside = await machine.lab.outside();
    writeLists(machine);
    const add = async (name: string, network: string, ...more: string[]): Promise<Row> => {
      await machine.ok(['ip', 'netns', 'add', name]);
      const argv = [CATENA, 'add', network, `/run/netns/${name}`, '--container-id', name, ...more];
      return JSON.parse(await machine.ok(argv));
    };
    const netnsOf = (name: string) => ({ name, path: machine.path(`/run/netns/${name}`) });
    const make = async (): Promise<Running> => {
      await add('web', 'shop', '--cap', JSON.stringify(PORTS));
      return { id: 'web', netns: netnsOf('web') };
    };
    const web = await make();
    const { ips } = await add('peer', 'quiet');
    const peer = { netns: netnsOf('peer'), address: ips[0].address.split('/')[0] };
    await body({
      ...{ machine, outside, web, peer, file: '66-shop.conflist' },
      async remake() {
        await machine.ok([CATENA, 'del', 'shop', '/run/netns/web', '--container-id', 'web']);
        await machine.ok(['ip', 'netns', 'del', 'web']);
        return make();
      },
    });
    for (const [name, network] of [
      ['web', 'shop'],
      ['peer', 'quiet'],
    ] as const)
      await machine.ok([CATENA, 'del', network, `/run/netns/${name}`, '--container-id', name]);
  });

export const onPodman: WithNode = body =>
  withMachine(async machine => {
    const podman = await startPodman(machine);
    const outside = await machine.lab.outside();
    writeLists(machine);
    const ports = ['--publish', '8080:80', '--publish', '5353:53/udp'];
    const make = async (): Promise<Running> => {
      const { id, pid } = await podman.runContainer('web', '--network', 'shop', ...ports);
      return { id, netns: machine.netnsOf(pid) };
    };
    const web = await make();
    const { pid, addresses } = await podman.runContainer('peer', '--network', 'quiet');
    await body({
      ...{ machine, outside, web, file: '66-shop.conflist' },
      peer: { netns: machine.netnsOf(pid), address: addresses.quiet?.v4 ?? '' },
      async remake() {
        await podman.run('rm', '--force', '--time', '0', 'web');
        return make();
      },
      maker: podmanMaker(machine, podman),
    });
    await podman.run('rm', '--force', '--time', '0', 'web', 'peer');
    expect((await machine.holds()).files).toEqual([]);
  });

/** Each pod has all networks, in the order of the names. */
export const onContainerd: WithNode = body =>
  withContainerd([shopList('shop', 66), stillList(), tightList(3)], async (node: ContainerdNode) => {
    const { machine, containerd, outside } = node;
    const cri = containerd.cri();
    const make = () => cri.runPod({ name: 'web', ports: PUBLISHED });
    let pod = await make();
    const running = ({ id, pid }: Pod): Running => ({ id, netns: machine.netnsOf(pid) });
    let peer = await cri.runPod({ name: 'peer' });
    const netns = machine.netnsOf(peer.pid);
    const [own] = await machine.lab.ip(netns, '-4', 'addr', 'show', 'dev', 'eth1');
    await body({
      ...{ machine, outside, web: running(pod), file: 'shop.conflist' },
      peer: { netns, address: own?.addr_info[0].local },
      async remake() {
        await endPod(cri, pod.id);
        pod = await make();
        return running(pod);
      },
      async remakePeer() {
        await endPod(cri, peer.id);
        peer = await cri.runPod({ name: 'peer' });
      },
      maker: containerdMaker(machine, cri),
    });
    for (const { id } of [pod, peer]) await endPod(cri, id);
    cri.close();
    expect((await machine.holds()).files).toEqual([]);
  });

function writeLists(machine: Machine): void {
  for (const list of [shopList('shop', 66), quietList('quiet', 77), tightList(1)])
    machine.write(`/etc/cni/net.d/66-${list.name}.conflist`, JSON.stringify(list));
}

/** A second network of each pod, with a bridge of its own, which is not damaged. */
function stillList(): Row {
  const ipam = { type: 'host-local', subnet: '10.77.0.0/24' };
  const bridge = { type: 'bridge', bridge: 'still0', isGateway: true, ipam };
  return { cniVersion: '1.0.0', name: 'still', plugins: [bridge, { type: 'firewall' }] };
}

function podmanMaker(machine: Machine, podman: Podman): Maker {
  return {
    make: name => podman.runContainer(name, '--network', 'tight'),
    async crash(name) {
      const state = await podman.run('inspect', '--format', '{{.State.ConmonPid}} {{.State.Pid}}', name);
      // In this order: conmon would have podman clean up.
      for (const pid of state.split(' ')) await machine.ok(['kill', '-KILL', pid]);
    },
    async remove(name) {
      await podman.run('rm', '--force', '--time', '0', name);
    },
  };
}

function containerdMaker(machine: Machine, cri: Cri): Maker {
  const pods = new Map<string, Pod>();
  return {
    async make(name) {
      const pod = await cri.runPod({ name });
      pods.set(name, pod);
      return pod;
    },
    // containerd leaves the network to kubelet's StopPodSandbox.
    async crash(name) {
      await machine.ok(['kill', '-KILL', String(pods.get(name)?.pid)]);
    },
    remove: name => endPod(cri, pods.get(name)?.id ?? ''),
  };
}

async function endPod(cri: Cri, id: string): Promise<void> {
  await cri.stopPod(id);
  await cri.removePod(id);
}
