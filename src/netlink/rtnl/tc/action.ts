// What can a filter do with the packets that it matches?
import { attrs, byKind, str, u32 } from '../../codec/attrs.ts';
import { mirred } from './mirred.ts';

/** One action of a filter; linux/pkt_cls.h, TCA_ACT_*. */
export const action = attrs('action', {
  kind: [1, str],
  options: [2, byKind('kind', { mirred })],
  index: [3, u32],
});

/** Values of {@link action}. */
export type Action = ReturnType<typeof action.decode>;
