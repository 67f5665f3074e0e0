// What is one row of the table: which chain, on which ground, with which steps?

import type { Container, Row as Json, Lab } from '../helpers/netns.ts';

/** Whose executables a twin runs. */
export type Side = 'reference' | 'ours';

/** One configuration that both sides run through the same steps. */
export interface TwinRow {
  /** Unique and short: it begins the line of the printed table. */
  readonly name: string;
  /** The chain, one entry or more, without `name` and `cniVersion`; `{tmp}` means the twin's own directory. */
  readonly plugins: readonly Json[];
  /** Default `1.0.0`, the newest version that the reference knows; `undefined` leaves the key out. */
  readonly cniVersion?: string | undefined;
  /** Further keys of every plugin's request: `runtimeConfig`, `args`, another `name`. */
  readonly more?: Json;
  /** `CNI_ARGS` of every step. */
  readonly args?: string;
  /** Changes the ground before the first step: existing bridges, sysctls, files. */
  readonly prepare?: (ground: Ground) => Promise<void>;
  /** Default {@link LIFE}. */
  readonly steps?: readonly Step[];
  /** Compares the whole packet filter; otherwise without translation and anti-spoofing, which probes test. */
  readonly wholePacketFilter?: boolean;
}

/** What one side works on; rows prepare it and probe it. */
export interface Ground {
  readonly side: Side;
  readonly lab: Lab;
  /** The containers `twin-1` and `twin-2`. */
  readonly containers: readonly [Container, Container];
}

/** A verb with its defaults, a verb with special options, or a question to the ground. */
export type Step = Verb | Call | Probe;

export type Verb = 'ADD' | 'CHECK' | 'DEL';

/** How a step differs from calling the chain for container 1 as a runtime would. */
export interface Call {
  readonly verb: Verb;
  /** Name of the step in paths; default the verb. */
  readonly label?: string;
  readonly container?: 1 | 2;
  readonly ifname?: string;
  readonly args?: string;
  /** What is wrong with `CNI_NETNS`: empty, deleted, a file that is not a namespace, or the plugin's own. */
  readonly netns?: 'none' | 'gone' | 'no namespace' | 'own';
  /** Replaces the row's plugins for this step. */
  readonly plugins?: readonly Json[];
  /** Merged over the row's. */
  readonly more?: Json;
  /** Further environment variables; `undefined` removes one. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Sent to stdin of the first plugin instead of the request. */
  readonly stdin?: string;
  /** Default: none for ADD; for other verbs the result of the last ADD for that container and interface. */
  readonly prevResult?: 'none' | 'last';
  /** Changes the ground just before the step. */
  readonly before?: (ground: Ground) => Promise<void>;
}

/** Asks the ground a question; both sides must give the same answer. */
export interface Probe {
  readonly probe: string;
  readonly ask: (ground: Ground) => Promise<unknown>;
}

/** A complete life, with a repeated DEL. */
export const LIFE: readonly Step[] = ['ADD', 'CHECK', 'DEL', { verb: 'DEL', label: 'DEL again' }];

/** A life in a version without CHECK. */
export const LIFE_WITHOUT_CHECK: readonly Step[] = LIFE.filter(step => step !== 'CHECK');

/** An ADD that fails, and the DEL that a runtime then sends. */
export const FAILURE: readonly Step[] = ['ADD', 'DEL'];

/** Types of all executables that a row calls. */
export function executablesOf(row: TwinRow): string[] {
  return row.plugins
    .flatMap(plugin => [plugin.type, plugin.ipam?.type])
    .filter(type => typeof type === 'string');
}
