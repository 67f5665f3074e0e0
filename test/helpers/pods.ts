// On what are plugins that follow a main plugin tested: two pods on a hand-made bridge, and a host outside?

import { deadline } from './deadline.ts';
import { type Container, type Lab, type Namespace, type Outside, untilUp } from './netns.ts';
import { LATEST_SPEC_VERSION } from './spec-versions.ts';
import { echo } from './traffic.ts';

/** A container with an address of each family. */
export interface Pod extends Container {
  readonly v4: string;
  readonly v6: string;
}

/** Two pods on a bridge, and a namespace beyond the host. */
export interface Scene {
  readonly lab: Lab;
  readonly outside: Outside;
  readonly pod: Pod;
  readonly neighbour: Pod;
}

/** Addresses of the bridge. */
export const BRIDGE = { v4: '10.9.0.1', v6: 'fd00:9::1' } as const;

export const FAMILIES = ['v4', 'v6'] as const;

/** Creates the bridge `br0` with both pods; the host forwards. */
export async function podsOnBridge(createLab: () => Promise<Lab>): Promise<Scene> {
  const lab = await createLab();
  // To forward IPv6, an interface needs its link-local address, which duplicate address detection would delay.
  await lab.sysctl(lab.host, 'net/ipv6/conf/default/accept_dad', 0);
  const outside = await lab.outside();
  await lab.batch(
    lab.host,
    'link add br0 type bridge',
    `addr add ${BRIDGE.v4}/24 dev br0`,
    `addr add ${BRIDGE.v6}/64 dev br0 nodad`,
    'link set br0 up',
  );
  await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
  await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
  const scene = { lab, outside, pod: await addPod(lab, 2), neighbour: await addPod(lab, 3) };
  await untilUp(lab.host, 'br0');
  return scene;
}

/** Adds another pod to the bridge, behind the port `pod<number>`. */
export async function addPod(lab: Lab, number: number): Promise<Pod> {
  const pod = await container(lab, number);
  await plugPod(lab, pod, { bridge: 'br0', port: `pod${number}`, gateways: BRIDGE });
  return pod;
}

/** Connects a pod to a bridge, gives it its addresses and, by these gateways, its default routes. */
export async function plugPod(
  lab: Lab,
  pod: Pod,
  to: { readonly bridge: string; readonly port: string; readonly gateways: Pick<Pod, 'v4' | 'v6'> },
): Promise<void> {
  const { bridge, port, gateways } = to;
  await lab.sysctl(pod, 'net/ipv6/conf/default/accept_dad', 0);
  await lab.batch(
    lab.host,
    `link add ${port} type veth peer eth0 netns ${pod.name}`,
    `link set ${port} master ${bridge} up`,
  );
  await lab.batch(
    pod,
    'link set lo up',
    `addr add ${pod.v4}/24 dev eth0`,
    `addr add ${pod.v6}/64 dev eth0 nodad`,
    'link set eth0 up',
    `route add default via ${gateways.v4}`,
    `route add default via ${gateways.v6}`,
  );
}

/** Lets the bridge send packets back to the pod that sent them, as needed where bridged packets pass the packet filter. */
export async function setHairpin(lab: Lab, number = 2): Promise<void> {
  await lab.ip(lab.host, 'link', 'set', `pod${number}`, 'type', 'bridge_slave', 'hairpin', 'on');
}

/** A pod whose interface has its addresses and leads nowhere. */
export async function fakePod(lab: Lab, number: number): Promise<Pod> {
  const pod = await container(lab, number);
  const addresses = FAMILIES.map(family => `addr add ${pod[family]} dev eth0`);
  await lab.batch(pod, 'link add eth0 type bridge', ...addresses);
  return pod;
}

async function container(lab: Lab, number: number): Promise<Pod> {
  return { ...(await lab.container()), v4: `10.9.0.${number}`, v6: `fd00:9::${number}` };
}

/** The result that the main plugin would have returned. */
export function resultOf(pod: Pod, version: string = LATEST_SPEC_VERSION, ifname = 'eth0'): object {
  const family = version < '1.0.0' ? [{ version: '4' }, { version: '6' }] : [{}, {}];
  return {
    cniVersion: version,
    interfaces: [{ name: 'pod' }, { name: ifname, sandbox: pod.path }],
    ips: [
      { ...family[0], address: `${pod.v4}/24`, interface: 1 },
      { ...family[1], address: `${pod.v6}/64`, interface: 1 },
    ],
  };
}

/** Sets whether the host's packet filter sees packets within the bridge; does nothing if the kernel does not support it. */
export async function showBridged(lab: Lab, shown: boolean): Promise<void> {
  for (const key of ['iptables', 'ip6tables']) {
    await lab.run(lab.host, ['sysctl', '-w', `net.bridge.bridge-nf-call-${key}=${shown ? 1 : 0}`]);
  }
}

/** The client address that the server sees; undefined if there is no reply. */
export async function peerSeen(
  lab: Lab,
  from: Namespace,
  protocol: 'tcp' | 'udp',
  address: string,
  port = 8080,
): Promise<string | undefined> {
  return (await echo(lab, from, { protocol, address, port }))?.peer;
}

/** Like {@link peerSeen}, for cases where no reply is expected: waits less. */
export async function answers(
  lab: Lab,
  from: Namespace,
  protocol: 'tcp' | 'udp',
  address: string,
  port = 8080,
): Promise<boolean> {
  return (await echo(lab, from, { protocol, address, port, timeoutMs: 700 })) !== undefined;
}

/** Sends from the same port each time, so that all requests belong to one flow. */
export async function askUdp(lab: Lab, from: Namespace, address: string): Promise<boolean> {
  const script = `
    setTimeout(() => process.exit(1), ${deadline(700)});
    const data = () => process.exit(0);
    const hostname = '${address.includes(':') ? '::' : '0.0.0.0'}';
    const socket = await Bun.udpSocket({ hostname, port: 40000, socket: { data } });
    socket.send('hello', 8080, '${address}');`;
  return (await lab.run(from, [process.execPath, '-e', script])).exitCode === 0;
}
