// What exists on a fake host, and what has changed since?
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { diffStates, renderDifference, type State, stateOf } from '../lab/diff.ts';
import { readFiles, readPlace } from '../lab/state.ts';
import { askOn, Tables } from '../netlink/tables.ts';
import type { Namespace } from './namespace.ts';

/** The complete state at one moment, by place: `host`, the names of containers, and `files`. */
export type KernelState = ReadonlyMap<string, State>;

/** What a state includes. */
export interface Scope {
  /** Namespaces by the names used in differences. */
  readonly places: ReadonlyMap<string, Namespace>;
  /** Directories whose files are included. */
  readonly dirs: readonly string[];
  /** Files and directories in them that are skipped. */
  readonly skip?: readonly string[];
  /** Kernel parameters to include, as paths below /proc/sys, besides those that turn a host into a router. */
  readonly sysctls?: readonly string[];
}

/**
 * Reads devices, addresses, routes, rules, traffic control, nf_tables and the given sysctls of every place, and the files of
 * the directories. Omits what the kernel creates itself.
 */
export function readState({ places, dirs, skip = [], sysctls = [] }: Scope): KernelState {
  const read = [...places].map(
    ([name, place]) =>
      [name, withoutLoopback(readPlace(new Tables(askOn(place)), place.netns, sysctls))] as const,
  );
  const files = readFiles(dirs, skip).map(file => ({
    ...file,
    state: { content: digestOf(file.key.replace(/^file /, '')) },
  }));
  return new Map([...read, ['files', stateOf(files)]]);
}

/** The differences, one per line: `host: + veth veth1a2b`, `c1: eth0: mtu 1500 → 1400`. Empty if there are none. */
export function diffKernelStates(before: KernelState, after: KernelState): string[] {
  const names = new Set([...before.keys(), ...after.keys()]);
  return [...names].flatMap(name => {
    const [old, now] = [before.get(name), after.get(name)];
    // A container that was created or removed is not a plugin's doing.
    if (old === undefined || now === undefined) return [];
    return renderDifference(diffStates(old, now)).map(line => `${name}: ${line}`);
  });
}

/** Removes the addresses that the loopback device gets when it first comes up and then keeps. */
function withoutLoopback(state: State): State {
  return new Map([...state].filter(([key]) => !/^address (127\.0\.0\.1\/8|::1\/128) on lo$/.test(key)));
}

function digestOf(path: string): string {
  try {
    return createHash('sha256').update(readFileSync(path)).digest('hex').slice(0, 8);
  } catch {
    return 'unreadable';
  }
}
