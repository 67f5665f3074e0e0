// What does every view get?
import type { ShownNode } from '../shown.ts';

/** The node, and what is typed into the search field. */
export interface ViewProps {
  readonly node: ShownNode;
  readonly query: string;
}
