// What is the whole kernel state of a namespace, in a form that is equal before and after a chain has come and gone?

import type { Finished } from './command.ts';
import type { Row } from './netns.ts';

/** Kernel state with everything left out that changes by itself. */
export interface Dump {
  readonly links: Row[];
  readonly addresses: Row[];
  readonly routes: Row[];
  readonly rules: Row[];
  readonly nft: Row[];
  readonly qdiscs: Row[];
  readonly filters: Row[];
}

/** What to leave out of a dump. */
export interface DumpOptions {
  /** Tables such as `inet catena`: a fixed skeleton may outlive the last attachment. */
  readonly ignoreTables?: readonly string[];
}

// Counters, timers and handles differ between two dumps of the same configuration.
const VOLATILE = new Set([
  ...[
    'stats',
    'stats64',
    'hello_timer',
    'tcn_timer',
    'topology_change_timer',
    'gc_timer',
    'message_age_timer',
  ],
  ...[
    'forward_delay_timer',
    'hold_timer',
    'valid_life_time',
    'preferred_life_time',
    'expires',
    'used',
    'refcnt',
  ],
  ...['bytes', 'packets', 'drops', 'overlimits', 'requeues', 'backlog', 'qlen', 'handle', 'index'],
  'direct_packets_stat',
]);

/** Reads links, addresses, routes, rules, the nf_tables rule set, qdiscs and filters; `exec` runs a tool in the namespace. */
export async function dumpKernelState(
  exec: (argv: string[]) => Promise<Finished>,
  options: DumpOptions = {},
): Promise<Dump> {
  const json = async (...argv: string[]): Promise<Row[]> => {
    const { stdout } = await exec(argv);
    return stdout.trim() === '' ? [] : JSON.parse(stdout);
  };
  const links = await json('ip', '-j', '-d', 'link', 'show');
  const qdiscs = await json('tc', '-j', '-d', 'qdisc', 'show');
  const ruleset = (await json('nft', '-j', 'list', 'ruleset')) as { nftables?: Row[] } | Row[];
  return {
    links: sorted(links),
    addresses: sorted(await json('ip', '-j', 'addr', 'show')),
    routes: sorted([
      ...(await json('ip', '-4', '-j', '-d', 'route', 'show', 'table', 'all')),
      ...(await json('ip', '-6', '-j', '-d', 'route', 'show', 'table', 'all')),
    ]),
    rules: sorted([...(await json('ip', '-4', '-j', 'rule')), ...(await json('ip', '-6', '-j', 'rule'))]),
    nft: withoutVolatile('nftables' in ruleset ? (ruleset.nftables ?? []) : []).filter(row => {
      return !('metainfo' in row) && !options.ignoreTables?.includes(tableOf(row));
    }),
    qdiscs: sorted(qdiscs),
    filters: sorted((await Promise.all(qdiscs.map(qdisc => filtersOf(json, qdisc)))).flat()),
  };
}

async function filtersOf(json: (...argv: string[]) => Promise<Row[]>, qdisc: Row): Promise<Row[]> {
  if (qdisc.kind === 'noqueue') return [];
  const hooks = { ingress: ['ingress'], clsact: ['ingress', 'egress'] }[String(qdisc.kind)];
  const parents = hooks?.map(hook => [hook]) ?? [['parent', String(qdisc.handle)]];
  const dumps = parents.map(async parent => {
    const rows = await json('tc', '-j', '-d', 'filter', 'show', 'dev', String(qdisc.dev), ...parent);
    return rows.map(row => ({ dev: qdisc.dev, ...row }));
  });
  return (await Promise.all(dumps)).flat();
}

function tableOf(row: Row): string {
  const [kind, object] = Object.entries(row)[0] ?? [];
  return `${object?.family} ${kind === 'table' ? object?.name : object?.table}`;
}

function sorted(rows: Row[]): Row[] {
  const key = (row: Row): string => `${row.ifname ?? row.dev ?? ''} ${JSON.stringify(row)}`;
  return withoutVolatile(rows).sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

function withoutVolatile(rows: Row[]): Row[] {
  const text = JSON.stringify(rows, (key, value) => (VOLATILE.has(key) ? undefined : value));
  return JSON.parse(text);
}
