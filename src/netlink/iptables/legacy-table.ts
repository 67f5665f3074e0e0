// Which tables does the legacy packet filter have, and what do they contain, as bytes?

import { readFileSync } from 'node:fs';
import type { Family } from '../../net/ip.ts';
import { readIpOption } from '../../sys/socket-option.ts';
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
export const XT_HEADER_BYTES = 32;
/** Offset in struct ipt_entry and struct ip6t_entry of the start of the target: __u16 target_offset, next_offset. */
export const OFFSETS_AT = { 4: 88, 6: 140 } as const;
/** linux/netfilter.h: a verdict is encoded as its negative value minus one. */
const XT_DROP = -1;

/** A table in the kernel's representation. */
export interface LegacyTable {
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
export function readLegacyTable(family: Family, table: IptablesTable): LegacyTable | undefined {
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
