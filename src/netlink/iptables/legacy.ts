// Which rules are in table "nat" of the legacy packet filter?
import { readFileSync } from 'node:fs';
import { type Family, IP_BITS, ipFromBytes } from '../../net/ip.ts';
import { readIpOption } from '../../sys/socket-option.ts';
import { readMatch, readTarget } from './extension.ts';
import { type AddressMatch, type NatRule, prefixOf } from './nat-rule.ts';
import type { IptablesTable } from './restore.ts';

/** linux/netfilter_ipv4/ip_tables.h and ip6_tables.h: the same numbers for both families. */
const SO_GET_INFO = 64;
const SO_GET_ENTRIES = 65;

/** linux/netfilter/x_tables.h: name[32], then for GET_INFO valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const NAME_BYTES = 32;
const INFO_BYTES = NAME_BYTES + 4 * (1 + 5 + 5 + 1 + 1);
/** The entries of struct ipt_get_entries are aligned to eight bytes. */
const ENTRIES_AT = 40;
const HOOKS = ['PREROUTING', 'INPUT', 'FORWARD', 'OUTPUT', 'POSTROUTING'] as const;

/** linux/netfilter/x_tables.h, struct xt_entry_target: u16 size, char name[29], u8 revision, then data. */
const XT_HEADER_BYTES = 32;
/** Offset in struct ipt_entry and struct ip6t_entry of the start of the target: __u16 target_offset, next_offset. */
const OFFSETS_AT = { 4: 88, 6: 140 } as const;
/** linux/netfilter.h: a verdict is encoded as its negative value minus one. */
const XT_DROP = -1;

/** A table in the kernel's representation. */
interface LegacyTable {
  readonly entries: Uint8Array;
  /** Built-in chains by the offset of their first entry. */
  readonly heads: ReadonlyMap<number, string>;
  /** Offset of the policy entry of each built-in chain. */
  readonly policies: ReadonlyMap<string, number>;
}

/**
 * Reads a table in the thread's namespace; undefined when the legacy packet filter does not have it. Any other query would
 * create it.
 */
function readLegacyTable(family: Family, table: IptablesTable): LegacyTable | undefined {
  if (!hasLegacyTable(family, table)) return undefined;
  const what = `read the table "${table}" of the legacy packet filter`;
  const info = named(table, INFO_BYTES);
  readIpOption(family, SO_GET_INFO, info, what);
  const words = new Uint32Array(info.buffer, NAME_BYTES);
  const size = words.at(12) ?? 0;
  const entries = named(table, ENTRIES_AT + size);
  new DataView(entries.buffer).setUint32(NAME_BYTES, size, true);
  readIpOption(family, SO_GET_ENTRIES, entries, what);
  const valid = words.at(0) ?? 0;
  const hooks = HOOKS.flatMap((name, i) => (valid & (1 << i) ? [{ name, i }] : []));
  return {
    entries: entries.subarray(ENTRIES_AT),
    heads: new Map(hooks.map(({ name, i }) => [words.at(1 + i) ?? 0, name])),
    policies: new Map(hooks.map(({ name, i }) => [name, words.at(1 + HOOKS.length + i) ?? 0])),
  };
}

/**
 * True when the policy of a built-in chain of the legacy packet filter is DROP.
 * Same as: `iptables-legacy -S <chain>` beginning with `-P <chain> DROP`
 */
export function isLegacyDropping(family: Family, table: IptablesTable, chain: string): boolean {
  const found = readLegacyTable(family, table);
  const at = found?.policies.get(chain);
  if (found === undefined || at === undefined) return false;
  const { entries } = found;
  const view = new DataView(entries.buffer, entries.byteOffset, entries.byteLength);
  const target = at + view.getUint16(at + OFFSETS_AT[family], true);
  return view.getInt32(target + XT_HEADER_BYTES, true) === XT_DROP;
}

/** True when the table is in use; a query through iptables would create it. */
export function hasLegacyTable(family: Family, table: IptablesTable): boolean {
  try {
    const names = readFileSync(`/proc/thread-self/net/ip${family === 4 ? '' : '6'}_tables_names`, 'utf8');
    return names.split('\n').includes(table);
  } catch {
    return false;
  }
}

function named(table: IptablesTable, size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  bytes.set(new TextEncoder().encode(table));
  return bytes;
}

/**
 * Offsets in struct ipt_entry and struct ip6t_entry of what we read; `masks` are those of both interfaces, `inverse` are the flags
 * IPT_INV_*.
 */
const LAYOUT = {
  4: {
    source: 0,
    destination: 4,
    sourceMask: 8,
    destinationMask: 12,
    masks: 48,
    protocol: 80,
    inverse: 83,
    offsets: OFFSETS_AT[4],
    entry: 112,
  },
  6: {
    source: 0,
    destination: 16,
    sourceMask: 32,
    destinationMask: 48,
    masks: 96,
    protocol: 128,
    inverse: 132,
    offsets: OFFSETS_AT[6],
    entry: 168,
  },
} as const;
const INV_SRCIP = 0x08;
const INV_DSTIP = 0x10;
/** linux/if.h, IFNAMSIZ */
const IFNAMSIZ = 16;

/** struct xt_entry_target: u8 revision after size and name. */
const XT_REVISION_AT = 31;
/** Every target is followed by at least a verdict, aligned. */
const VERDICT_BYTES = 4;
const ERROR_TARGET = 'ERROR';
/** linux/netfilter.h: a verdict is encoded as its negative value minus one; XT_RETURN uses that of NF_REPEAT. */
const VERDICTS: Readonly<Record<number, string>> = { [-1]: 'DROP', [-2]: 'ACCEPT', [-5]: 'RETURN' };

/**
 * Rules of table "nat" in the thread's namespace, in order; none when the legacy packet filter does not have the table.
 * Any other query would create it.
 * Same as: `iptables-legacy-save -t nat`
 */
export function listLegacyNat(family: Family): NatRule[] {
  const table = readLegacyTable(family, 'nat');
  return table ? decodeEntries(family, table.entries, table.heads) : [];
}

/**
 * The rules in a table's entries.
 * @param heads built-in chains by the offset of their first entry
 */
export function decodeEntries(
  family: Family,
  bytes: Uint8Array,
  heads: ReadonlyMap<number, string>,
): NatRule[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const layout = LAYOUT[family];
  const starts = new Map(heads);
  const places: { at: number; end: number }[] = [];
  for (let at = 0; at + layout.entry <= bytes.length; ) {
    const end = at + view.getUint16(at + layout.offsets + 2, true);
    const target = at + view.getUint16(at + layout.offsets, true);
    const fits = target >= at + layout.entry && target + XT_HEADER_BYTES + VERDICT_BYTES <= end;
    if (!fits || end > bytes.length) throw new Error('Cannot decode rules of the legacy packet filter');
    // A user-defined chain starts after an entry with its name.
    if (textAt(bytes, target + 2) === ERROR_TARGET) starts.set(end, textAt(bytes, target + XT_HEADER_BYTES));
    else places.push({ at, end });
    at = end;
  }
  let chain = '';
  return places.map(({ at, end }) => {
    chain = starts.get(at) ?? chain;
    const target = at + view.getUint16(at + layout.offsets, true);
    const verdict = view.getInt32(target + XT_HEADER_BYTES, true);
    const name = textAt(bytes, target + 2);
    const entry = bytes.subarray(at, end);
    const revision = bytes[target + XT_REVISION_AT] ?? 0;
    const facts = readTarget(family, { name, revision, info: bytes.subarray(target + XT_HEADER_BYTES, end) });
    return {
      ...facts,
      chain,
      target: name || (VERDICTS[verdict] ?? starts.get(verdict) ?? ''),
      ...headerFacts(family, entry),
      ...matchFacts(bytes.subarray(at + layout.entry, target)),
    };
  });
}

function headerFacts(family: Family, entry: Uint8Array): Partial<NatRule> {
  const layout = LAYOUT[family];
  const inverse = entry[layout.inverse] ?? 0;
  const addressAt = (at: number) => entry.subarray(at, at + IP_BITS[family] / 8);
  const match = (at: number, maskAt: number, not: boolean): AddressMatch | undefined => {
    const prefix = prefixOf(addressAt(maskAt));
    return prefix ? { cidr: { ip: ipFromBytes(addressAt(at)), prefix }, not } : undefined;
  };
  const isOtherwiseInverse = (inverse & ~(INV_SRCIP | INV_DSTIP)) !== 0;
  const hasOtherMask = [layout.sourceMask, layout.destinationMask].some(
    at => prefixOf(addressAt(at)) === undefined,
  );
  const hasInterface = entry.subarray(layout.masks, layout.masks + 2 * IFNAMSIZ).some(byte => byte !== 0);
  const protocol = (entry[layout.protocol] ?? 0) | ((entry[layout.protocol + 1] ?? 0) << 8);
  return {
    protocol: isOtherwiseInverse ? undefined : protocol || undefined,
    source: match(layout.source, layout.sourceMask, (inverse & INV_SRCIP) !== 0),
    destination: match(layout.destination, layout.destinationMask, (inverse & INV_DSTIP) !== 0),
    ...(isOtherwiseInverse || hasOtherMask || hasInterface ? { more: true } : {}),
  };
}

function matchFacts(matches: Uint8Array): Partial<NatRule> {
  const view = new DataView(matches.buffer, matches.byteOffset, matches.byteLength);
  let facts: Partial<NatRule> = {};
  let more = false;
  for (let at = 0; at + XT_HEADER_BYTES <= matches.length; ) {
    const size = view.getUint16(at, true);
    if (size < XT_HEADER_BYTES) break;
    const info = matches.subarray(at + XT_HEADER_BYTES, at + size);
    const known = readMatch({
      name: textAt(matches, at + 2),
      revision: matches[at + XT_REVISION_AT] ?? 0,
      info,
    });
    facts = { ...facts, ...known };
    more ||= known === undefined;
    at += size;
  }
  return more ? { ...facts, more } : facts;
}

function textAt(bytes: Uint8Array, at: number): string {
  const end = bytes.indexOf(0, at);
  return new TextDecoder().decode(bytes.subarray(at, end < 0 ? undefined : end));
}
