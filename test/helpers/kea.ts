// How does a test get a Kea server on a bridge of its fake host?
import { readFileSync, writeFileSync } from 'node:fs';
import { attachHost } from './dhcp-lab.ts';
import { serverCommand } from './dhcp-packages.ts';
import { addServedIpv6, makeServedBridge, SERVED, SERVED6 } from './dhcp-server.ts';
import type { Container, Lab, Namespace } from './netns.ts';
import { until } from './until.ts';

/** ISC's Kea, serving one interface. */
export interface Kea {
  /** What it logged so far, over all of its lives. */
  log(): string;
  /** The addresses that are leased. */
  leases(): string[];
  /** Stops it without a word to its clients. */
  stop(): Promise<void>;
}

/** How the server serves. */
export interface KeaOptions {
  /** First and last address. */
  readonly pool: string;
  readonly subnet: string;
  /** Grants at once what clients ask for in one exchange. */
  readonly rapid?: boolean;
  /** Further members of the configuration, such as times. */
  readonly more?: object;
  /** Options, by name. */
  readonly options?: Readonly<Record<string, string>>;
  /** Tells servers apart; one of the same name has the former's leases and identity. */
  readonly name?: string;
  /** The interface it serves; default: the bridge. */
  readonly device?: string;
}

/** What is served unless a test says otherwise. */
const POOLS = {
  4: { pool: '10.77.0.50-10.77.0.99', subnet: SERVED.subnet },
  6: { pool: 'fd77::100-fd77::1ff', subnet: SERVED6.subnet },
} as const;

/** Seconds so few that a test can wait for them: renewed after three, by any server after eight. */
export const SHORT_TIMES = { 'renew-timer': 3, 'rebind-timer': 8, 'valid-lifetime': 16 };
/** The same for IPv6, where an address must not be preferred for longer than it is valid. */
export const SHORT_TIMES6 = { ...SHORT_TIMES, 'preferred-lifetime': 12 };

/** Starts a server in a namespace, and waits until it serves. */
export async function startKea(
  lab: Lab,
  ns: Namespace,
  family: 4 | 6,
  { pool, subnet, rapid = false, more = {}, options = {}, name = 'kea', device = SERVED.bridge }: KeaOptions,
): Promise<Kea> {
  const [config, leases, log] = ['conf', 'leases', 'log'].map(end => `${lab.tmp}/${name}${family}.${end}`);
  const dhcp = {
    // The bridge has a carrier only once it has a port.
    'interfaces-config': {
      interfaces: [device],
      'service-sockets-max-retries': 100,
      'service-sockets-retry-wait-time': 100,
    },
    'lease-database': { type: 'memfile', name: leases, 'lfc-interval': 0 },
    [`subnet${family}`]: [
      {
        ...{ id: 1, subnet, interface: device, pools: [{ pool }] },
        ...(rapid ? { 'rapid-commit': true } : {}),
        'option-data': Object.entries(options).map(([key, data]) => ({ name: key, data })),
      },
    ],
    ...(family === 6
      ? {
          'data-directory': lab.tmp,
          'server-id': { type: 'EN', 'enterprise-id': 2495, identifier: idOf(name) },
        }
      : {}),
    loggers: [
      {
        name: `kea-dhcp${family}`,
        severity: 'DEBUG',
        debuglevel: 55,
        output_options: [{ output: log, flush: true }],
      },
    ],
    ...more,
  };
  writeFileSync(config ?? '', JSON.stringify({ [`Dhcp${family}`]: dhcp }));
  const read = (file = ''): string => {
    try {
      return readFileSync(file, 'utf8');
    } catch {
      return '';
    }
  };
  const before = read(log).length;
  const child = lab.start(ns, [
    ...['env', `KEA_PIDFILE_DIR=${lab.tmp}`, 'KEA_LOCKFILE_DIR=none'],
    ...serverCommand(`kea-dhcp${family}`, '-c', config ?? ''),
  ]);
  await until(() => read(log).slice(before).includes(`DHCP${family}_STARTED`), {
    withinMs: 20_000,
  });
  return {
    log: () => read(log),
    leases: () => leasedIn(read(leases)),
    async stop() {
      child.kill('SIGKILL');
      await child.exited;
    },
  };
}

/** Hexadecimal digits of a name. */
function idOf(name: string): string {
  return Buffer.from(name).toString('hex');
}

/** The file is a history: the last line about an address counts, and one without a lifetime ends its lease. */
function leasedIn(text: string): string[] {
  const [head = '', ...lines] = text.split('\n').filter(Boolean);
  const columns = head.split(',');
  const last = new Map<string, boolean>();
  for (const line of lines) {
    const cells = line.split(',');
    const cell = (column: string): string => cells[columns.indexOf(column)] ?? '';
    last.set(cell('address'), cell('valid_lifetime') !== '0' && cell('state') === '0');
  }
  return [...last].flatMap(([address, isLeased]) => (isLeased ? [address] : []));
}

/** A bridge with a server on the fake host, and another host. */
export interface ServedByKea {
  readonly server: Kea;
  /** Its `eth0` is connected to the bridge, and has no address. */
  readonly neighbour: Container;
}

/** Makes the bridge, and a server on the fake host. */
export async function serveKea(
  lab: Lab,
  family: 4 | 6,
  { rapid = false, ...options }: Partial<KeaOptions> & { readonly rapid?: boolean } = {},
): Promise<ServedByKea> {
  await makeServedBridge(lab);
  if (family === 6) await addServedIpv6(lab);
  const neighbour = await attachHost(lab, 'other0');
  const server = await startKea(lab, lab.host, family, { rapid, ...POOLS[family], ...options });
  return { server, neighbour };
}
