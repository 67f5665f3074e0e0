// Do the rules of a hook let a packet pass, and what becomes of its addresses?

import type { HOOK } from '../../netlink/nft/table.ts';
import type { FilterTable } from '../../netlink/tables.ts';
import {
  acceptDevices,
  type BaseChain,
  BRIDGE_FAMILIES,
  basesAt,
  familiesOf,
  NAT_STAGE,
  walkBase,
} from '../doctor/filter/fates.ts';
import type { Packet } from '../doctor/filter/packet.ts';
import type { Fate } from '../doctor/filter/walk.ts';
import { hop, lost, type Site, type Walk } from './site.ts';

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

/**
 * Follows the packet through the base chains of a hook, ours included, in the order of the kernel.
 * @param known the packet behind address translation, for a connection that exists
 * @param containerDevices devices of the node that lead to containers, for the command that accepts their packets
 */
export function* passHook(
  site: Site,
  hook: HookName,
  packet: Packet,
  options: Partial<PassOptions> = {},
): Walk<Passed> {
  const { known, isTranslating = !packet.isReply } = options;
  if (isTranslating && site.translators)
    yield lost(site, packet, 'translation', `${site.translators} may lead it elsewhere, and cannot be read`);
  const bases = basesAt(site.filter, hook, familiesOf(packet.family));
  const passage = new Passage(site, packet, bases, options.containerDevices ?? []);
  const isBehind = ({ stage }: BaseChain) => stage >= NAT_STAGE[hook];
  for (const base of bases) {
    if (known && isBehind(base)) passage.become(known);
    if (!base.isNat || (isTranslating && !passage.isTranslated)) yield* passage.through(base);
  }
  if (known) passage.become(known);
  if (!packet.isReply && !packet.isEstablished && (hook === 'forward' || hook === 'input'))
    yield* summarize(site, hook, packet, bases);
  return passage.passed;
}

/** The rules of other programs about what crosses a bridge. Ours stop only what claims an address or a device of another container. */
export function* passBridge(site: Site, hooks: readonly HookName[], packet: Packet): Walk {
  for (const hook of hooks) {
    const bases = basesAt(site.bridgeFilter, hook, BRIDGE_FAMILIES).filter(({ table }) => !table.isOwn);
    const passage = new Passage(site, packet, bases, []);
    for (const base of bases) yield* passage.through(base);
  }
}

/** A packet on its way through the base chains of a hook. */
class Passage {
  passed: Passed;
  isTranslated = false;
  readonly #site: Site;
  /** As it came. */
  readonly #packet: Packet;
  readonly #bases: readonly BaseChain[];
  readonly #containerDevices: readonly string[];

  constructor(site: Site, packet: Packet, bases: readonly BaseChain[], containerDevices: readonly string[]) {
    this.#site = site;
    this.#packet = packet;
    this.#bases = bases;
    this.#containerDevices = containerDevices;
    this.passed = { packet };
  }

  become(known: Packet): void {
    this.passed = { packet: { ...located(this.#site, known), mark: this.passed.packet.mark } };
  }

  *through(base: BaseChain): Walk {
    const { packet } = this.passed;
    const { fates, mark } = walkBase(base, packet);
    this.#change({ mark });
    const fate = fates.find(({ isSure, what }) => isSure && what === 'drop') ?? fates[0];
    if (fate?.what === 'drop') yield this.#drop(base, fate, packet);
    else if (fate) yield* this.#translate(base, fate, packet);
  }

  #change(more: Partial<Packet>): void {
    this.passed = { ...this.passed, packet: { ...this.passed.packet, ...more } };
  }

  #drop(base: BaseChain, fate: Fate, packet: Packet) {
    const name = base.table.isOwn ? 'policy' : 'rules';
    const place = placeOf(fate, base);
    if (!fate.isSure)
      return hop(this.#site, this.#packet, name, 'unknown', `${place} may drop it${doubtOf(fate)}`);
    const mend = mendDrop(this.#site, fate, base, packet, this.#containerDevices);
    return hop(this.#site, this.#packet, name, 'stops', `dropped by ${place}`, mend);
  }

  *#translate(base: BaseChain, fate: Fate, packet: Packet): Walk {
    const [site, came, place] = [this.#site, this.#packet, placeOf(fate, base)];
    if (fate.what === 'source' && !fate.isSure) {
      const words = `${place} may replace its source${doubtOf(fate)}`;
      yield hop(site, came, 'translation', 'unknown', words);
      this.#change({ source: undefined });
      return;
    }
    const rival = this.#bases.find(one => isRival(one, base, packet));
    if (rival && fate.what === 'translate') {
      const words = `chain "${rival.chain.name}" of ${nameOf(rival.table)} has the same priority`;
      yield lost(site, came, 'translation', `${place} may lead it elsewhere: ${words}`);
    }
    if (!fate.isSure) yield lost(site, came, 'translation', `${place} may lead it elsewhere${doubtOf(fate)}`);
    this.isTranslated = true;
    const { family, name } = fate.table;
    const undo = `nft delete rule ${family} ${name} ${fate.chain} handle ${fate.handle}`;
    this.passed = {
      packet: translated(site, this.passed.packet, fate),
      ...(fate.what === 'translate' ? { by: place, ...(base.table.isOwn ? {} : { undo }) } : {}),
    };
  }
}

/** Of chains with the same priority, the order cannot be read from the kernel. */
function isRival(one: BaseChain, { isNat, priority, table }: BaseChain, packet: Packet): boolean {
  if (!isNat || !one.isNat || one.priority !== priority || one.table === table) return false;
  return walkBase(one, packet).fates.some(({ what }) => what === 'translate');
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
  bases: readonly BaseChain[],
): Walk<undefined> {
  if (site.unread) yield hop(site, packet, 'rules', 'unknown', `not judged: ${site.unread}`);
  else if (hookName === 'forward') {
    const names = [...new Set(bases.map(({ table }) => nameOf(table)))];
    const words = names.length ? `accepted by ${names.join(', ')}` : 'no rule is about forwarded packets';
    yield hop(site, packet, 'rules', 'passes', words);
  }
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

function placeOf({ chain, handle, base, table, what }: Fate, { priority }: BaseChain): string {
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
  { table, chain }: BaseChain,
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
  if (BRIDGE_FAMILIES.includes(fate.table.family)) {
    const device = packet.iif === undefined ? `oifname ${packet.oif}` : `iifname ${packet.iif}`;
    return site.command(`nft insert rule ${name} ${fate.base} ${device} accept`);
  }
  const protocol = packet.protocol === 17 ? 'udp' : 'tcp';
  const what =
    packet.isReply || packet.isEstablished ? 'ct state established' : `${protocol} dport ${packet.port}`;
  return site.command(`nft insert rule ${name} ${fate.base} ${what} accept`);
}
