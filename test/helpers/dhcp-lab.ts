// How does a test attach containers to a bridge that a DHCP server serves?
import { expect } from 'bun:test';
import { readdirSync } from 'node:fs';
import {
  type DhcpServer,
  type DhcpServerOptions,
  makeServedBridge,
  SERVED,
  startDhcpServer,
} from './dhcp-server.ts';
import { type Container, type Lab, type Row, untilUp } from './netns.ts';

/**
 * Times of a lease so short that a test can wait for them: renewed after three seconds, by any server after twelve. dnsmasq takes
 * no less.
 */
export const SHORT = ['--dhcp-option=option:T1,3', '--dhcp-option=option:T2,12'];

/** What ADD reports. */
export interface DhcpResult {
  readonly ips: { address: string; gateway?: string }[];
  readonly routes?: object[];
  readonly dns?: object;
}

/** The configuration of bridge with dhcp on the served bridge. */
export function confOf(ipam: object = {}): Record<string, unknown> {
  const { bridge } = SERVED;
  return {
    cniVersion: '1.1.0',
    name: 'lan',
    type: 'bridge',
    bridge,
    ipam: { type: 'dhcp', timeout: 5, ...ipam },
  };
}

/** Makes the bridge, and a server on the fake host. */
export async function serve(lab: Lab, options?: DhcpServerOptions): Promise<DhcpServer> {
  await makeServedBridge(lab);
  return startDhcpServer(lab, lab.host, SERVED.bridge, options);
}

/** Attaches a container by bridge. */
export async function add(lab: Lab, container: Container, conf: object = confOf()): Promise<DhcpResult> {
  const reply = await lab.plugin('bridge', { command: 'ADD', conf, container });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

/** Calls at the same time: a runtime starts this many at most, and a busy machine can answer them. */
const AT_ONCE = 25;

/** Works on containers, some of them at a time. @returns what came of each, in order */
export async function inGroups<T>(
  containers: readonly Container[],
  work: (one: Container) => Promise<T>,
): Promise<T[]> {
  const results: T[] = [];
  for (let at = 0; at < containers.length; at += AT_ONCE)
    results.push(...(await Promise.all(containers.slice(at, at + AT_ONCE).map(work))));
  return results;
}

/** The addresses of the container's interface, with prefix lengths; for IPv6, those that are not link-local. */
export async function addressesOf(lab: Lab, container: Container, family = 'inet'): Promise<string[]> {
  const [link] = await lab.ip(container, 'addr', 'show', 'eth0');
  return (link?.addr_info ?? [])
    .filter((one: Row) => one.family === family && one.scope === 'global')
    .map(({ local, prefixlen }: Row) => `${local}/${prefixlen}`);
}

/** Connects another host to the bridge, by its interface `eth0`, without an address. @param port the bridge's end */
export async function attachHost(lab: Lab, port: string): Promise<Container> {
  const host = await lab.container();
  const peer = `peer eth0 netns ${host.name}`;
  for (const line of [`link add ${port} master ${SERVED.bridge} type veth ${peer}`, `link set ${port} up`])
    await lab.ip(lab.host, ...line.split(' '));
  await lab.ip(host, 'link', 'set', 'eth0', 'up');
  // The bridge forwards nothing to a port before: a broadcast that is sent once would not be heard.
  await untilUp(lab.host, port);
  await untilUp(host, 'eth0');
  return host;
}

/** Starts a second server, in a namespace of its own on the same bridge, with other addresses. */
export async function startRogue(lab: Lab, args: readonly string[]): Promise<DhcpServer> {
  const rogue = await attachHost(lab, 'rogue0');
  await lab.ip(rogue, 'addr', 'add', '10.77.0.2/24', 'dev', 'eth0');
  return startDhcpServer(lab, rogue, 'eth0', { name: 'rogue', range: ['10.77.0.200', '10.77.0.250'], args });
}

/** Names of the records of leases. */
export function recordsIn(lab: Lab): string[] {
  try {
    return readdirSync(`${lab.tmp}/state/upkeep/dhcp/lan`);
  } catch {
    return [];
  }
}
