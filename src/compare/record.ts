// What does one twin tell of a scene?
import type { Observation } from './observation.ts';

/** Everything there is at one moment: namespaces by name, and files by path. */
export interface Sight {
  readonly places: Readonly<Record<string, Observation>>;
  readonly files: Readonly<Record<string, string>>;
}

/** How a link, or a whole step, answered. */
export interface Answer {
  readonly failed: boolean;
  /** Of an ADD that succeeded. */
  readonly result?: unknown;
  readonly code?: number;
  readonly message?: string;
}

/** After a link has run, or after a step: then without `index`. */
export interface Moment {
  readonly step: string;
  readonly verb: string;
  /** Place of the link in the list. */
  readonly index?: number;
  readonly answer: Answer;
  readonly durationMs: number;
  readonly sight: Sight;
}

/** A scene as one twin lived through it. */
export interface SceneRecord {
  /** Inodes of the namespaces, by name: whoever writes them down means the namespace. */
  readonly namespaces: Readonly<Record<string, string>>;
  /** Milliseconds since 1970. */
  readonly began: number;
  readonly ended: number;
  readonly before: Sight;
  readonly moments: readonly Moment[];
}
