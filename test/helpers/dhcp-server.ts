// How does a test get a DHCP server on a bridge of its fake host?
import { readFileSync } from 'node:fs';
import type { Lab, Namespace } from './netns.ts';
import { until } from './until.ts';

/** Debian's dnsmasq, serving one interface. */
export interface DhcpServer {
  /** What it logged so far. */
  log(): string;
  /** Its leases: time, hardware address, address, name, client identifier. */
  leases(): string[];
  /** Stops it without a word to its clients. */
  stop(): Promise<void>;
}

/** How the server serves. */
export interface DhcpServerOptions {
  /** First and last address. */
  readonly range?: readonly [first: string, last: string];
  /** Further arguments of dnsmasq. */
  readonly args?: readonly string[];
  /** Tells servers with the same interface name apart. */
  readonly name?: string;
}

/** The bridge on which {@link serveBridge} answers, and the server's address on it. */
export const SERVED = { bridge: 'br0', server: '10.77.0.1', subnet: '10.77.0.0/24' } as const;

/** Makes the bridge on the fake host, with the server's address. */
export async function makeServedBridge(lab: Lab): Promise<void> {
  const { bridge, server } = SERVED;
  await lab.run(lab.host, ['ip', 'link', 'add', bridge, 'address', '02:00:00:00:00:77', 'type', 'bridge']);
  await lab.run(lab.host, ['ip', 'addr', 'add', `${server}/24`, 'dev', bridge]);
  await lab.run(lab.host, ['ip', 'link', 'set', bridge, 'up']);
}

/** The same for IPv6: the subnet, and the server's addresses; the link-local one follows from the bridge's hardware address. */
export const SERVED6 = { subnet: 'fd77::/64', server: 'fd77::1', router: 'fe80::ff:fe00:77' } as const;

/** Gives the bridge its IPv6 address, which is usable at once. */
export async function addServedIpv6(lab: Lab): Promise<void> {
  await lab.ip(lab.host, 'addr', 'add', `${SERVED6.server}/64`, 'dev', SERVED.bridge, 'nodad');
}

/** Starts a server on an interface of a namespace, and waits until it listens. */
export async function startDhcpServer(
  lab: Lab,
  ns: Namespace,
  device: string,
  { range = ['10.77.0.50', '10.77.0.99'], args = [], name = 'dhcp' }: DhcpServerOptions = {},
): Promise<DhcpServer> {
  const [leaseFile, logFile] = [`${lab.tmp}/${name}.leases`, `${lab.tmp}/${name}.log`];
  const child = lab.start(ns, [
    ...['dnsmasq', '--keep-in-foreground', '--conf-file=/dev/null', '--port=0', '--user=root', '--no-ping'],
    ...['--bind-interfaces', `--interface=${device}`, '--except-interface=lo', '--log-dhcp'],
    ...[`--dhcp-leasefile=${leaseFile}`, `--log-facility=${logFile}`, `--pid-file=${lab.tmp}/${name}.pid`],
    ...[`--dhcp-range=${range[0]},${range[1]},255.255.255.0,2m`, ...args],
  ]);
  const read = (file: string): string => {
    try {
      return readFileSync(file, 'utf8');
    } catch {
      return '';
    }
  };
  await until(() => read(logFile).includes('sockets bound exclusively'));
  return {
    log: () => read(logFile),
    leases: () => read(leaseFile).split('\n').filter(Boolean),
    async stop() {
      child.kill('SIGKILL');
      await child.exited;
    },
  };
}
