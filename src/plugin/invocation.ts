// What goes into one call of a link, and what comes out?
import type { Log } from '../log.ts';
import type { PluginDefinition } from './define.ts';

/** One invocation of a link: what a process gets from its parent. */
export interface Invocation {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Read only when the command needs it: VERSION must answer without. */
  readonly readRequest: () => string;
}

/** What goes back. Log lines wait in `log` until someone flushes it. */
export interface Reply {
  readonly exitCode: number;
  readonly stdout: string;
  readonly log: Log;
}

/** Finds another link of this executable by name. */
export type Siblings = (name: string) => Promise<PluginDefinition> | undefined;

/** Calls another link of this executable in this process; undefined when it has none of that name. */
export type CallSibling = (name: string, invocation: Invocation) => Promise<Reply> | undefined;
