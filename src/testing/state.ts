// What is there on a fake host, and what has changed since?
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { diffStates, renderDifference } from '../lab/diff.ts';
import { readPlace } from '../lab/snapshot.ts';
import { readFiles } from '../lab/state/files.ts';
import { type State, stateOf } from '../lab/state/object.ts';
import type { Namespace } from './namespace.ts';

/** Everything at one moment, by place: `host`, the names of containers, and `files`. */
export type KernelState = ReadonlyMap<string, State>;

/** What a moment is looked at for. */
export interface Scope {
  /** Namespaces by the name that differences carry. */
  readonly places: ReadonlyMap<string, Namespace>;
  /** Directories whose files count. */
  readonly dirs: readonly string[];
  /** Files and directories among them that do not. */
  readonly skip?: readonly string[];
  /** Kernel parameters, as paths below /proc/sys, besides those that turn a host into a router. */
  readonly sysctls?: readonly string[];
}

/**
 * Reads devices, addresses, routes, rules, traffic control, nf_tables and the given sysctls of every place, and the
 * files of the directories. What the kernel makes by itself is left out.
 */
export function readState({ places, dirs, skip = [], sysctls = [] }: Scope): KernelState {
  const read = [...places].map(
    ([name, place]) => [name, withoutLoopback(readPlace(place, sysctls))] as const,
  );
  const files = readFiles(dirs, skip).map(file => ({
    ...file,
    state: { content: digestOf(file.key.replace(/^file /, '')) },
  }));
  return new Map([...read, ['files', stateOf(files)]]);
}

/** What differs, one line each: `host: + veth veth1a2b`, `c1: eth0: mtu 1500 → 1400`. Empty when nothing does. */
export function diffKernelStates(before: KernelState, after: KernelState): string[] {
  const names = new Set([...before.keys(), ...after.keys()]);
  return [...names].flatMap(name => {
    const [old, now] = [before.get(name), after.get(name)];
    // A container that came or went is not something a plugin does.
    if (old === undefined || now === undefined) return [];
    return renderDifference(diffStates(old, now)).map(line => `${name}: ${line}`);
  });
}

/** The addresses that the loopback device gets when it comes up for the first time, and then keeps. */
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
