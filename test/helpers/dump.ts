// What is the whole kernel state of a namespace, in a form that is equal before a chain's ADD and after its DEL?

import type { Finished } from './command.ts';
import type { Row } from './netns.ts';

/** Kernel state without anything that changes on its own. */
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
  /** With bridges of ours that wait for their next container; default without. */
  readonly waiting?: boolean;
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

/**
 * Reads links, addresses, routes, rules, the nf_tables rule set, qdiscs and filters; `exec` runs a tool in the namespace. Leaves out
 * bridges of ours that wait for their next container, with the ports that carry their VLANs' gateways: DEL keeps them.
 */
export async function dumpKernelState(
  exec: (argv: string[], stdin?: string) => Promise<Finished>,
  options: DumpOptions = {},
): Promise<Dump> {
  // One process answers several questions, one line each: a run of all tests makes thousands of dumps.
  const ask = async (argv: string[], ...questions: string[]): Promise<Row[][]> => {
    if (questions.length === 0) return [];
    const { stdout } = await exec(
      [...argv, '-j', '-d', '-batch', '-'],
      questions.map(one => `${one}\n`).join(''),
    );
    const answers = stdout.split('\n').filter(line => line !== '');
    if (answers.length !== questions.length)
      throw new Error(`Cannot read the answers of "${argv.join(' ')}": ${stdout}`);
    return answers.map(line => JSON.parse(line));
  };
  const routing = ['route show table all', 'rule show'];
  const [v4, v6, [qdiscs = []], ruleset] = await Promise.all([
    ask(['ip'], 'link show', 'addr show', ...routing),
    ask(['ip', '-6'], ...routing),
    ask(['tc'], 'qdisc show'),
    exec(['nft', '-j', 'list', 'ruleset']).then(({ stdout }) => JSON.parse(stdout || '[]')),
  ]);
  const [links = [], addresses = [], routes = [], rules = []] = v4;
  const [routes6 = [], rules6 = []] = v6;
  const filters = filterQuestions(qdiscs);
  const found = await ask(['tc'], ...filters.map(({ question }) => question));
  const waiting = options.waiting ? [] : waitingBridges(links);
  const isKept = ({ ifname, dev }: Row): boolean => !waiting.includes(String(ifname ?? dev));
  return {
    links: sorted(links.filter(isKept)),
    addresses: sorted(addresses.filter(isKept)),
    routes: sorted([...routes, ...routes6].filter(isKept)),
    rules: sorted([...rules, ...rules6]),
    nft: withoutVolatile('nftables' in ruleset ? (ruleset.nftables ?? []) : []).filter(row => {
      return !('metainfo' in row) && !options.ignoreTables?.includes(tableOf(row));
    }),
    qdiscs: sorted(qdiscs.filter(isKept)),
    filters: sorted(filters.flatMap(({ dev }, i) => (found[i] ?? []).map(row => ({ dev, ...row })))),
  };
}

/** Bridges that our plugin made and that have no port but those for the gateways of VLANs, and these. */
export function waitingBridges(links: readonly Row[]): string[] {
  const isGateway = ({ ifalias }: Row) => ifalias === 'catena:gateway';
  const idle = links.filter(({ ifalias, ifname }) => {
    return ifalias === 'catena:bridge' && links.every(one => one.master !== ifname || isGateway(one));
  });
  const names = idle.map(({ ifname }) => String(ifname));
  const ends = links.filter(one => isGateway(one) && names.includes(String(one.master)));
  const carriers = links.filter(one => isGateway(one) && ends.some(({ link }) => link === one.ifname));
  return [...names, ...[...ends, ...carriers].map(({ ifname }) => String(ifname))];
}

/** The questions about the filters of every qdisc that can have some. */
function filterQuestions(qdiscs: Row[]): { dev: unknown; question: string }[] {
  return qdiscs.flatMap(({ kind, handle, dev }) => {
    if (kind === 'noqueue') return [];
    const hooks = { ingress: ['ingress'], clsact: ['ingress', 'egress'] }[String(kind)] ?? [
      `parent ${handle}`,
    ];
    return hooks.map(hook => ({ dev, question: `filter show dev ${dev} ${hook}` }));
  });
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
