// What does an intermediate functional block device take to be created?
import { attrs } from '../../codec/attrs.ts';

/** Kind `ifb` has no data of its own: what it shapes is decided by qdiscs and redirects. */
export const ifb = attrs('ifb', {});
