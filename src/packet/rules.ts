// Do the rules of a hook let a packet pass, and what becomes of its addresses?

import { acceptDevices, type BaseChain, basesAt, familiesOf, marksIn } from '../doctor/filter/fates.ts';
import type { Packet } from '../doctor/filter/packet.ts';
import { type Fate, walk } from '../doctor/filter/walk.ts';
import type { HOOK } from '../netlink/nft/chain.ts';
import type { FilterTable } from '../netlink/tables.ts';
import { hop, lost, type Walk } from './report.ts';
import type { Site } from './site.ts';

/** Name of a hook. */
export type HookName = keyof typeof HOOK;

/** A packet behind the rules of a hook. */
export interface Passed {
  readonly packet: Packet;
  /** The rule that changed its destination, human-readable; undefined if none did. */
  readonly by?: string;
  /** Command that deletes that rule, if it is not ours. */
  readonly undo?: string;
}

interface Entry extends BaseChain {
  readonly isNat: boolean;
}

/** linux/netfilter_ipv4.h: NF_IP_PRI_CONNTRACK, of the hooks where packets come in. */
const CONNTRACK = -200;
const TRACKING: readonly HookName[] = ['prerouting', 'output'];

/** The same file: all chains of type nat run at one place of a hook, in their own order. */
const NAT_STAGE: Readonly<Record<HookName, number>> = {
  ...{ prerouting: -100, output: -100, postrouting: 100, input: 100, forward: 0 },
};

/**
 * Follows the packet through the base chains of a hook, ours included, in the order of the kernel.
 * @param known the packet behind address translation, for a connection that exists
 * @param containerDevices devices of the node that lead to containers, for the command that accepts their packets
 */
export function* passHook(
  site: Site,
  hook: HookName,
  packet: Packet,
  { containerDevices = [], known, isTranslating = !packet.isReply }: Partial<PassOptions> = {},
): Walk<Passed> {
  if (isTranslating && site.translators)
    yield lost(site, packet, 'translation', `${site.translators} may lead it elsewhere, and cannot be read`);
  const tables = site.filter;
  const mark = marksIn(tables);
  const entries = entriesAt(tables, hook, packet.family);
  let passed: Passed = { packet };
  let done = !isTranslating;
  for (const entry of entries) {
    if (known && stageOf(entry, hook) >= NAT_STAGE[hook]) passed = { packet: located(site, known) };
    if (entry.isNat && done) continue;
    const isTracked = !TRACKING.includes(hook) || entry.isNat || entry.priority > CONNTRACK;
    const seen = { ...passed.packet, isTracked };
    const fates = walk(entry.table, entry.chain, seen, { mark, target: undefined });
    const fate = fates.find(({ isSure, what }) => isSure && what === 'drop') ?? fates[0];
    if (fate === undefined) continue;
    const place = placeOf(fate, entry);
    if (fate.what === 'drop') {
      const name = entry.table.isOwn ? 'policy' : 'rules';
      const mend = () => mendDrop(site, fate, entry, passed.packet, containerDevices);
      if (fate.isSure) yield hop(site, packet, name, 'stops', `dropped by ${place}`, mend());
      else yield hop(site, packet, name, 'unknown', `${place} may drop it${doubtOf(fate)}`);
      continue;
    }
    if (fate.what === 'source' && !fate.isSure) {
      const words = `${place} may replace its source${doubtOf(fate)}`;
      yield hop(site, packet, 'translation', 'unknown', words);
      passed = { ...passed, packet: { ...passed.packet, source: undefined } };
      continue;
    }
    const rival = entries.find(one => one !== entry && isRival(one, entry, passed.packet));
    if (rival && fate.what === 'translate') {
      const words = `chain "${rival.chain.name}" of ${nameOf(rival.table)} has the same priority`;
      yield lost(site, packet, 'translation', `${place} may lead it elsewhere: ${words}`);
    }
    if (!fate.isSure)
      yield lost(site, packet, 'translation', `${place} may lead it elsewhere${doubtOf(fate)}`);
    done = true;
    const undo = `nft delete rule ${fate.table.family} ${fate.table.name} ${fate.chain} handle ${fate.handle}`;
    passed = {
      packet: translated(site, passed.packet, fate),
      ...(fate.what === 'translate' ? { by: place, ...(entry.table.isOwn ? {} : { undo }) } : {}),
    };
  }
  if (known) passed = { packet: located(site, known) };
  if (!packet.isReply && !packet.isEstablished && (hook === 'forward' || hook === 'input'))
    yield* summarize(site, hook, packet, entries);
  return passed;

  /** Of chains with the same priority, the order cannot be read from the kernel. */
  function isRival(one: Entry, { isNat, priority, table }: Entry, seen: Packet): boolean {
    if (!isNat || !one.isNat || one.priority !== priority || one.table === table) return false;
    const own = walk(one.table, one.chain, seen, { mark, target: undefined });
    return own.some(({ what }) => what === 'translate');
  }
}

interface PassOptions {
  readonly containerDevices: readonly string[];
  readonly known: Packet;
  /** False for packets of a connection that exists. */
  readonly isTranslating: boolean;
}

function* summarize(
  site: Site,
  hookName: HookName,
  packet: Packet,
  entries: readonly Entry[],
): Walk<undefined> {
  if (site.unread) yield hop(site, packet, 'rules', 'unknown', `not judged: ${site.unread}`);
  else if (hookName === 'forward') {
    const names = [...new Set(entries.map(({ table }) => nameOf(table)))];
    const words = names.length ? `accepted by ${names.join(', ')}` : 'no rule is about forwarded packets';
    yield hop(site, packet, 'rules', 'passes', words);
  }
}

function entriesAt(tables: readonly FilterTable[], hook: HookName, family: 4 | 6): Entry[] {
  return basesAt(tables, hook, familiesOf(family))
    .map(one => ({ ...one, isNat: one.chain.base?.type === 'nat' }))
    .sort((a, b) => stageOf(a, hook) - stageOf(b, hook));
}

function stageOf({ isNat, priority }: Entry, hook: HookName): number {
  return isNat ? NAT_STAGE[hook] : priority;
}

/** Whether the destination is an address of the host changes with it. */
function located(site: Site, packet: Packet): Packet {
  return { ...packet, isLocal: site.has(packet.destination ?? '') };
}

function translated(site: Site, packet: Packet, { what, to, toPort, labels }: Fate): Packet {
  if (what === 'source') {
    const own = packet.oif === undefined ? undefined : site.addressOf(site.link(packet.oif), packet.family);
    return { ...packet, source: to ?? own };
  }
  const known = labels === undefined ? {} : { labels };
  // Without an address, the packet stays on this host.
  const destination = to ?? packet.destination;
  const changed = { ...packet, ...known, destination, port: toPort ?? packet.port, isTranslated: true };
  return located(site, changed);
}

function nameOf({ table }: Pick<FilterTable, 'table'>): string {
  return `table ${table.family} ${table.name}`;
}

function placeOf({ chain, handle, base, table, what }: Fate, { priority }: Entry): string {
  const where = `table ${table.family} ${table.name}, chain "${chain}"`;
  const entered = chain === base ? '' : `entered from "${base}", `;
  const rule = handle === undefined ? (what === 'drop' ? 'the policy' : 'a rule') : `rule ${handle}`;
  return `${rule} of ${where} (${entered}priority ${priority})`;
}

function doubtOf({ doubt }: Fate): string {
  return doubt === undefined ? '' : `: rule ${doubt.handle} of chain "${doubt.chain}" cannot be judged`;
}

/** Undefined for our own rules, which keep to what the network's list says. */
function mendDrop(
  site: Site,
  fate: Fate,
  { table, chain }: Entry,
  packet: Packet,
  containerDevices: readonly string[],
): string | undefined {
  if (table.isOwn) return undefined;
  const devices = [...new Set([packet.iif, packet.oif])].filter(name => name !== undefined);
  const own = devices.filter(name => containerDevices.includes(name));
  if (chain.base?.hook === 'forward' && own.length > 0) return acceptDevices(fate, table.chains, own);
  const name = `${fate.table.family} ${fate.table.name}`;
  if (fate.handle !== undefined)
    return site.command(`nft delete rule ${name} ${fate.chain} handle ${fate.handle}`);
  const protocol = packet.protocol === 17 ? 'udp' : 'tcp';
  const what =
    packet.isReply || packet.isEstablished ? 'ct state established' : `${protocol} dport ${packet.port}`;
  return site.command(`nft insert rule ${name} ${fate.base} ${what} accept`);
}
