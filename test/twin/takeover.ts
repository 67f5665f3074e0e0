// Can one set of executables finish what the other has begun?

import { mixedBinDir, writeChain } from '../helpers/chain.ts';
import type { Lab, Row } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { leftBy, onMixGround, PORTS, trafficOf } from './mix.ts';
import { listOf, PLUGINS, type Variant } from './mixes.ts';

/** Which set makes the attachment; the other one takes over the named plugins. */
export interface Takeover extends Variant {
  readonly from: 'ours' | 'theirs';
  readonly plugins: readonly string[];
  /** Where our address translation is; the reference's is always in iptables. */
  readonly backend: 'nftables' | 'iptables';
}

/** The outcome: lists are empty if everything is right. */
export interface TakeoverReport {
  readonly takeover: Takeover;
  /** Verbs that failed, with their errors. */
  readonly failed: readonly string[];
  /** Those of {@link EXCEPTIONS} that occurred. */
  readonly known: readonly Exception[];
  /** Paths without traffic while both sets had a pod each. */
  readonly silent: readonly string[];
  /** Rules, addresses and filters that exist twice at that point. */
  readonly doubled: readonly string[];
  /** What is left when both pods are gone. */
  readonly left: readonly string[];
  /** What is left of that after a `catena gc` that keeps nothing, with our plugins. */
  readonly afterGc: readonly string[];
}

const VARIANT: Variant = { chain: 'guarded', cniVersion: '1.0.0', families: 'dual' };

/** How a takeover may fail, or what it may leave until GC; and why. */
interface Exception {
  /** Either direction unless given. */
  readonly from?: Takeover['from'];
  readonly of: (typeof COLUMNS)[number];
  readonly what: RegExp;
  readonly reason: string;
}

const COLUMNS = ['CHECK', 'DEL', 'left'] as const;

/** Reviewed, and each must occur. */
export const EXCEPTIONS: readonly Exception[] = [
  {
    of: 'CHECK',
    what: /^CHECK of the first: .*could not check ipv6 dnat: /,
    reason: "the reference's portmap looks for mappings of IPv4 among those of IPv6, until 1.3",
  },
  {
    from: 'ours',
    of: 'CHECK',
    what: /^CHECK of the first: .*could not check ipv4 dnat: chain CNI-DN-\w+ not found/,
    reason: "the reference's portmap looks in iptables only: ours is found there with that backend",
  },
  {
    from: 'ours',
    of: 'DEL',
    what: /^DEL of the first: .*-D POSTROUTING .*Chain 'CNI-\w+' does not exist/,
    reason: "the reference's bridge fails without a chain of iptables: the DEL stays open, and GC ends it",
  },
  {
    from: 'ours',
    of: 'left',
    what: /^left: (elements = .* comment "catena:podnet\/twin-1\/eth0"|(cni|state)\/)/,
    reason: 'the reference does not know our sets of nf_tables: GC empties them',
  },
  {
    from: 'ours',
    of: 'left',
    what: /^left: ip6? daddr \S+ ct status dnat counter packets \d+ bytes \d+ accept$/,
    reason: 'the reference does not know the rule that accepts published ports: GC removes it',
  },
];

/** Both directions: each plugin alone, then the whole chain at once; what our plugins may have in iptables, there as well. */
export function takeovers(): Takeover[] {
  const sets = [...PLUGINS.guarded.map(plugin => [plugin]), PLUGINS.guarded];
  const all = (['ours', 'theirs'] as const).flatMap(from => {
    return sets.map(plugins => ({ ...VARIANT, from, plugins, backend: 'nftables' as const }));
  });
  const again = sets.filter(plugins => plugins.includes('bridge') || plugins.includes('portmap'));
  return [
    ...all,
    ...again.map(plugins => ({ ...VARIANT, from: 'ours', plugins, backend: 'iptables' }) as const),
  ];
}

/** The name of a takeover in tests and in the table. */
export function titleOf({ from, plugins, backend }: Takeover): string {
  const what = plugins.length === 1 ? plugins[0] : 'the whole chain';
  const to = from === 'ours' ? 'the reference' : 'ours';
  return `${what} of ${from === 'ours' ? 'ours' : 'the reference'} to ${to}${backend === 'iptables' ? ', iptables' : ''}`;
}

/**
 * Attaches a pod with one set, replaces the plugins, attaches a second pod, then checks and deletes both with the current
 * executables.
 */
export async function takeOver(takeover: Takeover): Promise<TakeoverReport> {
  return await onMixGround(async ground => {
    const { lab, one, peer } = ground;
    const list = withBackend(listOf(takeover, lab), takeover);
    const chain = writeChain(lab, list);
    const all = PLUGINS[takeover.chain];
    const rest = all.filter(link => !takeover.plugins.includes(link));
    const dirOf = (theirs: readonly string[]) => mixedBinDir(lab, REFERENCE_BIN_DIR, ...theirs);
    const [before, after] =
      takeover.from === 'ours' ? [dirOf([]), dirOf(takeover.plugins)] : [dirOf(all), dirOf(rest)];

    await chain.add(one, { binDir: before, cap: PORTS });
    const failed: string[] = [];
    const run = async (verb: string, container: typeof one) => {
      const { exitCode, stderr } = await chain.run(verb, container, { binDir: after });
      const name = container.id === one.id ? 'of the first' : 'of the second';
      if (exitCode !== 0) failed.push(`${verb.toUpperCase()} ${name}: ${stderr.split('\n')[0]}`);
    };
    // If the host ports were not released, this would fail.
    const addAnew = async () => {
      for (const verb of ['add', 'del']) {
        const { exitCode, stderr } = await chain.run(verb, one, { cap: PORTS });
        if (exitCode !== 0) failed.push(`${verb.toUpperCase()} after GC: ${stderr.split('\n')[0]}`);
      }
    };
    await run('add', peer);
    const traffic = Object.entries(await trafficOf(ground, takeover, 3));
    const silent = traffic.flatMap(([way, answer]) => (answer && answer !== 'no answer' ? [] : [way]));
    const doubled = await doubledIn(lab);
    for (const pod of [one, peer]) await run('check', pod);
    for (const pod of [one, peer]) await run('del', pod);
    const left = await leftBy(ground);
    // In a process id namespace of its own, GC cannot tell that what is left is unused, and would keep it.
    if (left.length > 0) await chain.run('gc', one, { args: ['--all', '--foreign'] });
    const afterGc = left.length > 0 ? await leftBy(ground) : [];
    if (left.length > 0) await addAnew();
    return { takeover, ...sorted(takeover, failed, left), silent, doubled, afterGc };
  });
}

/** One line for each takeover, then the meaning of the numbers. */
export function renderTakeovers(reports: readonly TakeoverReport[]): string {
  const rows = reports.map(({ takeover, failed, known, silent, doubled, left, afterGc }) => {
    const cells = COLUMNS.map(column => {
      const isIn = (one: Exception) => one.of === column && known.includes(one);
      const numbers = EXCEPTIONS.flatMap((one, i) => (isIn(one) ? [i + 1] : []));
      return (numbers.length ? numbers.join(' ') : 'ok').padEnd(column.length);
    });
    const wrong = [...failed, ...left, ...silent, ...doubled, ...afterGc];
    return [titleOf(takeover).padEnd(50), ...cells, wrong.length === 0 ? 'ok' : wrong.join('; ')];
  });
  const head = ['ADD with the first, all else with the other'.padEnd(50), ...COLUMNS];
  const lines = [[...head, 'traffic, nothing doubled, nothing left after GC'], ...rows];
  const legend = EXCEPTIONS.map(({ reason }, i) => `| ${i + 1}  ${reason}`);
  return [...lines.map(cells => `| ${cells.join(' | ')} |`), ...legend, ''].join('\n');
}

function withBackend({ plugins, ...list }: Row, { backend }: Takeover): Row {
  if (backend === 'nftables') return { plugins, ...list };
  const chosen: Row = { bridge: { ipMasqBackend: backend }, portmap: { backend } };
  return { ...list, plugins: plugins.map((entry: Row) => ({ ...entry, ...chosen[entry.type] })) };
}

/** Separates known exceptions from problems. */
function sorted(
  { from }: Takeover,
  failed: readonly string[],
  left: readonly string[],
): Pick<TakeoverReport, 'failed' | 'left' | 'known'> {
  const known = new Set<Exception>();
  const isWrong = (what: string) => {
    const reasons = EXCEPTIONS.filter(one => (one.from ?? from) === from && one.what.test(what));
    for (const reason of reasons) known.add(reason);
    return reasons.length === 0;
  };
  return {
    failed: failed.filter(isWrong),
    left: left.filter(what => isWrong(`left: ${what}`)),
    known: EXCEPTIONS.filter(one => known.has(one)),
  };
}

/** Equal rules in one chain, equal filters on one device, and addresses that two devices have. */
async function doubledIn(lab: Lab): Promise<string[]> {
  const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout.split('\n');
  let place = '';
  const placed = rules.flatMap(line => {
    if (/^\s*(table|chain|set|map) /.test(line)) place = `${/^table/.test(line) ? '' : place} ${line.trim()}`;
    return /^\s*[{}]?\s*$|^\s*(table|chain|set|map) /.test(line) ? [] : [`${place}: ${line.trim()}`];
  });
  const addresses = await lab.ip(lab.host, 'addr', 'show');
  const held = addresses.flatMap(({ addr_info }) => addr_info.map(({ local }: { local: string }) => local));
  return [...new Set([...repeated(placed), ...repeated(held)])];
}

function repeated(texts: readonly string[]): string[] {
  return texts.filter((text, i) => texts.indexOf(text) !== i);
}
