// What does a plugin find to work on: a container, and what earlier plugins would have made?
import { isObject, type JsonObject } from '../cni/json.ts';
import type { Result } from '../cni/result.ts';
import { parseCidr } from '../net/cidr.ts';
import { parseIp } from '../net/ip.ts';
import { addAddress } from '../netlink/rtnl/addr.ts';
import { createLink, findLink, getLink, setLink } from '../netlink/rtnl/link.ts';
import { addRoute } from '../netlink/rtnl/route.ts';
import { inNetns } from '../sys/netns.ts';
import { trySysctl } from '../sys/sysctl.ts';
import type { Container, TestHost } from '../testing/host.ts';
import type { Namespace } from '../testing/namespace.ts';
import type { Subject } from './subject.ts';

/** A container that a plugin is called for. */
export interface Pod {
  readonly container: Container;
  /** The input of ADD, in 1.1.0; undefined for the first plugin of a chain. */
  readonly prevResult: Result | undefined;
  /** The answer of ADD. */
  result?: JsonObject;
}

let counter = 0;

/** Creates a container, with an interface in it for a chained plugin. */
export function makePod(host: TestHost, subject: Subject): Pod {
  const { chained, device, bridge } = subject;
  if (device !== undefined) ensureDevice(host.namespace, device);
  const container = host.container();
  if (bridge !== undefined) joinBridge(host.namespace, container, bridge, subject.ifname);
  if (!chained) return { container, prevResult: undefined };
  const prevResult = connect(host.namespace, container, subject);
  return { container, prevResult };
}

/** The device's other end also stays on the host. */
function ensureDevice({ route }: Namespace, name: string): void {
  if (findLink(route, name)) return;
  const other = `${name.slice(0, 13)}-x`;
  createLink(route, { name, kind: 'veth', peer: { name: other } });
  for (const end of [name, other]) setLink(route, getLink(route, end).index, { up: true });
}

/** Makes the bridge of the subject, if it has one. */
export function makeBridge({ route }: Namespace, { bridge }: Subject): void {
  if (bridge === undefined) return;
  createLink(route, { name: bridge, kind: 'bridge' });
  setLink(route, getLink(route, bridge).index, { up: true });
}

/** A veth pair between the bridge and the container. */
function joinBridge({ route }: Namespace, container: Container, bridge: string, ifname: string): void {
  const port = `port${++counter}`;
  const master = getLink(route, bridge).index;
  createLink(route, {
    name: port,
    kind: 'veth',
    master,
    peer: { name: ifname, netnsFd: container.netns.fd },
  });
  for (const [socket, name] of [
    [route, port],
    [container.route, ifname],
  ] as const)
    setLink(socket, getLink(socket, name).index, { up: true });
}

/** A veth pair with the addresses of the result, routed as the first plugin of a chain would do it. */
function connect(host: Namespace, container: Container, { ifname, prevResult }: Subject): Result {
  const result = (structuredClone(prevResult) ?? defaultResult(ifname)) as Result;
  const interfaces = (result.interfaces ?? []).filter(isObject);
  const outer = interfaces.find(({ sandbox }) => !sandbox);
  const inner = interfaces.find(({ sandbox }) => sandbox);
  const hostName = outer?.name ?? `pod${counter}`;
  const name = inner?.name ?? ifname;
  createLink(host.route, { name: hostName, kind: 'veth', peer: { name, netnsFd: container.netns.fd } });
  const [hostEnd, end] = [getLink(host.route, hostName), getLink(container.route, name)];
  // During duplicate address detection the addresses would not be usable for the plugin.
  inNetns(host.netns, () => trySysctl(`net/ipv6/conf/${hostName}/accept_dad`, '0'));
  inNetns(container.netns, () => trySysctl(`net/ipv6/conf/${name}/accept_dad`, '0'));
  setLink(host.route, hostEnd.index, { up: true });
  setLink(container.route, end.index, { up: true });
  for (const { address, gateway } of result.ips ?? []) {
    const cidr = parseCidr(address);
    addAddress(container.route, end.index, cidr, { nodad: true });
    if (!gateway) continue;
    const ip = parseIp(gateway);
    addAddress(host.route, hostEnd.index, { ip, prefix: cidr.prefix }, { nodad: true });
    const dst = parseCidr(cidr.ip.family === 4 ? '0.0.0.0/0' : '::/0');
    addRoute(container.route, { dst, gateway: ip, oif: end.index });
  }
  const macs = { [hostName]: hostEnd.mac, [name]: end.mac };
  return {
    ...result,
    interfaces: (result.interfaces ?? []).map(one => ({
      ...one,
      ...(macs[one.name] === undefined ? {} : { mac: macs[one.name] as string }),
      ...(one.sandbox ? { sandbox: container.path } : {}),
    })),
  };
}

function defaultResult(ifname: string): Result {
  const number = ++counter % 250;
  const gateway = `10.201.${number}.1`;
  return {
    interfaces: [{ name: `pod${number}` }, { name: ifname, sandbox: 'container' }],
    ips: [{ address: `10.201.${number}.2/24`, gateway, interface: 1 }],
    routes: [{ dst: '0.0.0.0/0', gw: gateway }],
    dns: { nameservers: [gateway] },
  };
}
