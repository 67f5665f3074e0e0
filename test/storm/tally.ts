// How many actions of which kind were there, and how many of them failed?

import type { Action } from './history.ts';

/** Actions of one kind. */
export interface Count {
  readonly done: number;
  readonly failed: number;
}

/** Counts by kind. */
export type Tally = Record<string, Count>;

/** Adds to the count of a kind. */
export function count(tally: Tally, kind: string, { done, failed }: Count): void {
  const before = tally[kind] ?? { done: 0, failed: 0 };
  tally[kind] = { done: before.done + done, failed: before.failed + failed };
}

/** The kind under which an action is counted: what is done, and by whom or in which way. */
export function kindOf(action: Action): string {
  if (action.kind === 'del' && action.forget) return 'del --forget';
  if ('foreign' in action && action.foreign) return `${action.kind} ${action.by}, foreign ${action.foreign}`;
  if ('running' in action && action.running) return action.kind === 'add' ? 'attach' : 'detach';
  if (action.kind === 'set')
    return ['set', action.hostPort && 'port', action.rate && 'rate'].filter(Boolean).join(' ');
  if ('by' in action) return `${action.kind} ${action.by}`;
  if ('act' in action)
    return `${action.kind} ${action.act}${'watch' in action && action.watch ? ', repairs' : ''}`;
  if ('what' in action) return `${action.kind} ${action.what}`;
  return 'list' in action ? `${action.kind} ${action.list}` : action.kind;
}
