// What does an examination of a node say?
import type { NodeFacts } from './facts.ts';

/** `error`: containers cannot be attached, or something is lost. `warning`: it will bite one day. `info`: good to know. */
export const SEVERITIES = ['error', 'warning', 'info', 'ok'] as const;

/** One of {@link SEVERITIES}. */
export type Severity = (typeof SEVERITIES)[number];

/** What one check found. */
export interface Finding {
  /** Stable: scripts and documents name it. */
  readonly id: string;
  readonly severity: Severity;
  readonly found: string;
  /** The command that mends it, or what to look at. */
  readonly mend?: string;
}

/** One check: everything it finds, at least one finding. */
export interface Check {
  readonly id: string;
  run(node: NodeView): readonly Finding[];
}

/** What checks look at. */
export interface NodeView {
  readonly facts: NodeFacts;
  readonly confDir: string;
  readonly pluginDirs: readonly string[];
  readonly cacheDir: string;
  readonly stateDir: string;
  readonly runDir: string;
  /** Text of a file; undefined when it cannot be read. Paths are those of the machine. */
  read(path: string): string | undefined;
  /** Names in a directory; none when it cannot be read. */
  list(path: string): readonly string[];
  /** Why nothing can be written into a directory; undefined when something can, or when it is not there yet. */
  findStorageProblem(dir: string): string | undefined;
  /** Routes and devices of this namespace. */
  readonly routes: readonly NodeRoute[];
  readonly devices: readonly NodeDevice[];
}

/** A route as checks need it. */
export interface NodeRoute {
  readonly destination: string;
  readonly device: string;
}

/** A device as checks need it. */
export interface NodeDevice {
  readonly name: string;
  readonly kind: string;
  /** Bytes. */
  readonly mtu: number;
}

/** The only finding of a check that found nothing wrong. */
export function fine(id: string, found: string): Finding[] {
  return [{ id, severity: 'ok', found }];
}
