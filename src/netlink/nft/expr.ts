// Which expressions can a rule consist of?
import { attrs, byKind, str, type ValuesOf } from '../codec/attrs.ts';
import { bitwise } from './expr/bitwise.ts';
import { cmp } from './expr/cmp.ts';
import { counter, match, target } from './expr/compat.ts';
import { ct } from './expr/ct.ts';
import { fib } from './expr/fib.ts';
import { immediate } from './expr/immediate.ts';
import { lookup } from './expr/lookup.ts';
import { meta } from './expr/meta.ts';
import { masq, nat } from './expr/nat.ts';
import { payload } from './expr/payload.ts';
import { range } from './expr/range.ts';

/** One file per kind in expr/; to add a kind, add a file there and its name here. */
const kinds = {
  bitwise,
  cmp,
  counter,
  ct,
  fib,
  immediate,
  lookup,
  masq,
  match,
  meta,
  nat,
  payload,
  range,
  target,
};

/** linux/netfilter/nf_tables.h, enum nft_expr_attributes */
export const expression = attrs('expression', {
  name: [1, str],
  data: [2, byKind('name', kinds)],
});

/** One step of a rule; evaluation of a rule stops at the first step that does not match. */
export type Expression = {
  [K in keyof typeof kinds]: { readonly name: K; readonly data: ValuesOf<(typeof kinds)[K]> };
}[keyof typeof kinds];
