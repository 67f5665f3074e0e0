// What is one row of the table: which chain, on which ground, and what happens to it?

import type { Container, Row as Json, Lab } from '../helpers/netns.ts';

/** Whose executables a twin runs. */
export type Side = 'reference' | 'ours';

/** One configuration that both sides run through the same steps. */
export interface TwinRow {
  /** Unique, and short: it leads the line of the printed table. */
  readonly name: string;
  /** The chain, one entry or more, without `name` and `cniVersion`; `{tmp}` stands for a directory of the twin's own. */
  readonly links: readonly Json[];
  /** Default `1.0.0`, the newest that the reference's version knows; `undefined` leaves the key out. */
  readonly cniVersion?: string | undefined;
  /** Keys of every link's request besides: `runtimeConfig`, `args`, another `name`. */
  readonly more?: Json;
  /** `CNI_ARGS` of every step. */
  readonly args?: string;
  /** Changes the ground before the first step: bridges that exist already, sysctls, files. */
  readonly prepare?: (ground: Ground) => Promise<void>;
  /** Default {@link LIFE}. */
  readonly steps?: readonly Step[];
  /** Compares the whole packet filter; otherwise without translation and anti-spoofing, of which probes tell. */
  readonly wholePacketFilter?: boolean;
}

/** What one side works on; rows prepare it and probe it. */
export interface Ground {
  readonly side: Side;
  readonly lab: Lab;
  /** The containers `twin-1` and `twin-2`. */
  readonly containers: readonly [Container, Container];
}

/** A verb with its defaults, a verb as a row wants it, or a question to the ground. */
export type Step = Verb | Call | Probe;

export type Verb = 'ADD' | 'CHECK' | 'DEL';

/** What a step does other than calling the chain for container 1 as a runtime would. */
export interface Call {
  readonly verb: Verb;
  /** How paths call the step; default the verb. */
  readonly label?: string;
  readonly container?: 1 | 2;
  readonly ifname?: string;
  readonly args?: string;
  /** What is wrong with `CNI_NETNS`: empty, deleted, a file that is no namespace, or the plugin's own. */
  readonly netns?: 'none' | 'gone' | 'no namespace' | 'own';
  /** Puts other links in place of the row's, for this step. */
  readonly links?: readonly Json[];
  /** Merged over the row's. */
  readonly more?: Json;
  /** Environment besides; `undefined` takes a variable away. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** What goes to stdin of the first link, instead of the request. */
  readonly stdin?: string;
  /** Default: nothing for ADD, for others the result of the last ADD for that container and interface. */
  readonly prevResult?: 'none' | 'last';
  /** Changes the ground just before. */
  readonly before?: (ground: Ground) => Promise<void>;
}

/** Asks the ground something; both sides must give the same answer. */
export interface Probe {
  readonly probe: string;
  readonly ask: (ground: Ground) => Promise<unknown>;
}

/** From birth to death, and death once more. */
export const LIFE: readonly Step[] = ['ADD', 'CHECK', 'DEL', { verb: 'DEL', label: 'DEL again' }];

/** Life in a version without CHECK. */
export const LIFE_WITHOUT_CHECK: readonly Step[] = LIFE.filter(step => step !== 'CHECK');

/** An ADD that fails, and the DEL that a runtime sends then. */
export const FAILURE: readonly Step[] = ['ADD', 'DEL'];

/** Types of all executables that a row calls. */
export function executablesOf(row: TwinRow): string[] {
  return row.links.flatMap(link => [link.type, link.ipam?.type]).filter(type => typeof type === 'string');
}
