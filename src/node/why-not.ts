// Which hop stops a TCP connection from outside to a port of the host that leads to a container?
//
// A hop stops the packet only if nothing else on this node could let it pass. Rules are not simulated: where foreign rules could
// decide otherwise, the hop is unknown.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { renderOwner } from '../cni/attachment.ts';
import { renderIp } from '../net/ip.ts';
import { listTableNames } from '../netlink/nft/table.ts';
import { type Listener, listListeners } from '../netlink/sock-diag.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, findNetns, inNetns } from '../sys/netns.ts';
import { findSysctl } from '../sys/sysctl.ts';
import { findElements, TABLE_PREFIX } from './marks.ts';
import type { NodeAttachment, NodeModel } from './model.ts';

/** One place that the packet passes. */
export interface Hop {
  readonly name: 'mapping' | 'translation' | 'forwarding' | 'rules' | 'device' | 'listener';
  readonly state: 'passes' | 'stops' | 'unknown';
  /** Human-readable. */
  readonly evidence: string;
  /** Command that mends it. */
  readonly mend?: string;
}

/** The hops in order; the last one is the first that stops the packet, if one does. */
export function whyNot(node: NodeModel, port: number): Hop[] {
  const leading = node.attachments.flatMap(attachment =>
    attachment.state === 'attached'
      ? attachment.ports
          .filter(one => one.hostPort === port && one.protocol === 'tcp')
          .map(mapped => ({ attachment, mapped }))
      : [],
  );
  const [only] = leading;
  if (only === undefined) return [unmapped(port)];
  const { attachment, mapped } = only;
  if (leading.length > 1 || mapped.hostIP !== undefined) {
    const evidence = `port ${port} leads to a container for some addresses of the host only`;
    return [{ name: 'mapping', state: 'unknown', evidence }];
  }
  if (!attachment.addresses.some(one => one.includes('.'))) {
    const words = `${attachment.containerID} has no IPv4 address, and IPv6 is not judged`;
    return [{ name: 'mapping', state: 'unknown', evidence: words }];
  }
  const evidence = `port ${port} leads to port ${mapped.containerPort} of ${attachment.containerID}`;
  const hops: Hop[] = [{ name: 'mapping', state: 'passes', evidence }];
  const steps = [
    () => translation(attachment, port),
    forwarding,
    () => hop('rules', 'unknown', 'the rules of nf_tables and iptables are not simulated'),
    () => devices(node, attachment),
    () => listener(attachment, mapped.containerPort),
  ];
  for (const step of steps) {
    const found = unlessForeign(step());
    hops.push(found);
    // Behind an unknown translation, it is not known where the packet goes.
    if (found.state === 'stops' || (found.name === 'translation' && found.state === 'unknown')) break;
  }
  return hops;
}

/** Foreign rules see the packet before ours, and may lead it to another place that answers. */
function unlessForeign(found: Hop): Hop {
  if (found.state !== 'stops' || !hasForeignRules()) return found;
  const evidence = `${found.evidence}, but foreign rules may lead the port elsewhere`;
  return { ...found, state: 'unknown', evidence };
}

function hop(name: Hop['name'], state: Hop['state'], evidence: string, mend?: string): Hop {
  return { name, state, evidence, ...(mend === undefined ? {} : { mend }) };
}

function unmapped(port: number): Hop {
  const own = listListeners(6);
  if (own?.some(one => one.port === port))
    return hop('mapping', 'unknown', `no container has port ${port}; a process of the host listens on it`);
  const words = `no container has port ${port}, and no process of the host listens on it`;
  if (own === undefined || hasForeignRules())
    return hop('mapping', 'unknown', `${words}, but foreign rules may lead it elsewhere`);
  return hop('mapping', 'stops', words);
}

/** An attachment may have its ports from a plugin that is not ours, which needs other rules. */
function translation(attachment: NodeAttachment, port: number): Hop {
  const { network, containerID: containerId, ifname } = attachment;
  const isOwn = (comment = '') =>
    [undefined, comment.length].some(
      length => renderOwner({ network, containerId, ifname }, length) === comment,
    );
  const mark = findElements({ port }).find(({ comment }) => isOwn(comment));
  if (mark) return hop('translation', 'passes', mark.what);
  const words = `no element of our tables leads port ${port} to it`;
  if (listListeners(6)?.some(one => one.port === port) !== false)
    return hop('translation', 'unknown', `${words}, but a process of the host may answer`);
  return hop('translation', 'stops', words, `catena repair ${network}`);
}

/** net.ipv4.ip_forward sets it for all devices; one that was set on its own may differ. */
function forwarding(): Hop {
  if (findSysctl('net/ipv4/ip_forward') === '1')
    return hop('forwarding', 'passes', 'net.ipv4.ip_forward = 1');
  const devices = readdirSync('/proc/sys/net/ipv4/conf').filter(
    name => findSysctl(`net/ipv4/conf/${name}/forwarding`) !== '0',
  );
  if (devices.length > 0)
    return hop('forwarding', 'unknown', `net.ipv4.ip_forward = 0, but not for ${devices.join(', ')}`);
  return hop('forwarding', 'stops', 'net.ipv4.ip_forward = 0', 'sysctl -w net.ipv4.ip_forward=1');
}

function devices(node: NodeModel, { device, hostDevice, ifname, network, netns }: NodeAttachment): Hop {
  if (device === undefined)
    return hop('device', 'unknown', `interface "${ifname}" is missing or cannot be read`);
  const bridge = node.bridges.find(one => one.device.name === hostDevice?.master)?.device;
  const down = [hostDevice, bridge].find(one => one?.up === false);
  if (down) {
    const mend = `ip link set dev ${down.name} up`;
    return hop('device', 'stops', `device "${down.name}" of the host is down`, mend);
  }
  if (device.up) return hop('device', 'passes', `"${ifname}" and its devices on the host are up`);
  // The routes of a device vanish when it goes down.
  const mend = `nsenter --net=${netns} ip link set dev ${ifname} up && catena repair ${network}`;
  return hop('device', 'stops', `interface "${ifname}" of the container is down`, mend);
}

function listener({ netns, addresses }: NodeAttachment, port: number): Hop {
  const inside = look(netns);
  if (inside?.listeners === undefined) return hop('listener', 'unknown', 'its sockets cannot be read');
  const own = inside.listeners.filter(one => one.port === port);
  const takes = own.find(one => isOpen(one, addresses));
  if (takes) return hop('listener', 'passes', `a process listens on ${renderIp(takes.address)} port ${port}`);
  const others = own.map(({ address }) => renderIp(address)).join(', ');
  const words = others
    ? `processes listen on port ${port} of ${others} only`
    : `no process in the container listens on port ${port}`;
  if (inside.isFiltered)
    return hop('listener', 'unknown', `${words}, but rules in its namespace may lead it elsewhere`);
  return hop('listener', 'stops', words);
}

function isOpen({ address, onlyV6 }: Listener, addresses: readonly string[]): boolean {
  if (address.value === 0n) return address.family === 4 || !onlyV6;
  const text = renderIp(address);
  return addresses.some(one => [one.split('/')[0], `::ffff:${one.split('/')[0]}`].includes(text));
}

function look(path: string): { listeners: Listener[] | undefined; isFiltered: boolean } | undefined {
  const netns = findNetns(path);
  if (netns === undefined) return undefined;
  try {
    return inNetns(netns, () => ({ listeners: listListeners(6), isFiltered: hasForeignRules() }));
  } catch {
    return undefined;
  } finally {
    closeNetns(netns);
  }
}

/** Tables that are not ours, iptables-legacy's included; true if they cannot be read. */
function hasForeignRules(): boolean {
  const socket = new NetlinkSocket(NETLINK_NETFILTER);
  try {
    const legacy = '/proc/thread-self/net/ip_tables_names';
    if (existsSync(legacy) && readFileSync(legacy, 'utf8') !== '') return true;
    return listTableNames(socket).some(({ name }) => !name.startsWith(TABLE_PREFIX));
  } catch {
    return true;
  } finally {
    socket.close();
  }
}
