// What does one twin record of a scene?
import type { Observation } from './observation.ts';

/** The complete state at one moment: namespaces by name, and files by path. */
export interface Sight {
  readonly places: Readonly<Record<string, Observation>>;
  readonly files: Readonly<Record<string, string>>;
}

/** The answer of a plugin or of a whole step. */
export interface Answer {
  readonly failed: boolean;
  /** The result of a successful ADD. */
  readonly result?: unknown;
  readonly code?: number;
  readonly message?: string;
}

/** The state after a plugin has run, or after a step, which has no `index`. */
export interface Moment {
  readonly step: string;
  readonly verb: string;
  /** Index of the plugin in the conflist. */
  readonly index?: number;
  readonly answer: Answer;
  readonly durationMs: number;
  readonly sight: Sight;
}

/** The record of a scene played by one twin. */
export interface SceneRecord {
  /** Inodes of the namespaces, by name: an inode in a file means the namespace. */
  readonly namespaces: Readonly<Record<string, string>>;
  /** Milliseconds since 1970. */
  readonly began: number;
  readonly ended: number;
  readonly before: Sight;
  readonly moments: readonly Moment[];
}
