// How is a condition shown: a sign and a word, and then a colour?
import type { JSX } from 'preact';
import { type Condition, SIGNS } from '../../node/graph/condition.ts';

/** The condition of an attachment. */
export function Badge({ condition }: { readonly condition: Condition }): JSX.Element {
  const { sign, meaning } = SIGNS[condition];
  return (
    <span class={`badge ${condition}`} title={meaning}>
      <span aria-hidden="true">{sign}</span> {condition}
    </span>
  );
}

/** The outcome of a request or a plugin: 0 is success, else an error code of the protocol. */
export function Outcome({ code }: { readonly code: number }): JSX.Element {
  const isFine = code === 0;
  return (
    <span class={`badge ${isFine ? 'sound' : 'broken'}`}>
      <span aria-hidden="true">{isFine ? '✓' : '✕'}</span> {isFine ? 'success' : `code ${code}`}
    </span>
  );
}
