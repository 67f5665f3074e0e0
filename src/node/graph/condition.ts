// In which condition is an attachment, and how is that shown without colour?
import type { NodeAttachment } from '../model.ts';

/** From bad to good, as the list is sorted. */
export const CONDITIONS = ['broken', 'unsettled', 'gone', 'unknown', 'unchecked', 'sound'] as const;
export type Condition = (typeof CONDITIONS)[number];

/** A sign and what it means, next to any colour. */
export const SIGNS: Readonly<Record<Condition, { readonly sign: string; readonly meaning: string }>> = {
  broken: { sign: '✕', meaning: 'CHECK fails' },
  unsettled: { sign: '!', meaning: 'an operation was interrupted or failed' },
  gone: { sign: '–', meaning: 'its namespace no longer exists' },
  unknown: { sign: '?', meaning: 'CHECK cannot be run' },
  unchecked: { sign: '…', meaning: 'not checked yet' },
  sound: { sign: '✓', meaning: 'CHECK passes' },
};

/** What CHECK reports comes first. */
export function conditionOf({ state, health }: Pick<NodeAttachment, 'state' | 'health'>): Condition {
  if (health?.state === 'broken') return 'broken';
  if (state !== 'attached') return state;
  return health?.state ?? 'unchecked';
}

/** Whether it needs attention. */
export function isProblem(condition: Condition): boolean {
  return condition === 'broken' || condition === 'unsettled';
}

/** The attachments with problems first, otherwise in their order. */
export function worstFirst(attachments: readonly NodeAttachment[]): NodeAttachment[] {
  const rank = (one: NodeAttachment) => (isProblem(conditionOf(one)) ? 0 : 1);
  return attachments.toSorted((a, b) => rank(a) - rank(b));
}
