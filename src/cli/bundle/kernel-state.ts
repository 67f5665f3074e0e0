// What has the kernel in the namespace of this process: devices, addresses, routes, traffic control, packet filter?
import { readNetnsState } from '../../lab/state.ts';
import { Tables } from '../../netlink/tables.ts';
import { ownNetns } from '../../sys/netns.ts';

/** A line for each object, as `catena try` names them. */
export function readKernelLines(): string[] {
  return [...readNetnsState(new Tables(), ownNetns(), []).values()].map(({ words, state: details = {} }) => {
    const more = Object.entries(details).map(([name, value]) => `${name} ${value}`);
    return [words, ...(more.length ? [more.join(', ')] : [])].join(': ');
  });
}

/** Every chain with its rules, of all tables and owners; bytes as hexadecimal digits. */
export function readFilter(): unknown {
  const tables = new Tables().filter.map(({ table, chains, rules }) => {
    return { table, chains: chains.map(chain => ({ ...chain, rules: rules.get(chain.name) ?? [] })) };
  });
  return plain(tables);
}

function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (value instanceof Uint8Array) return value.toHex();
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
}
