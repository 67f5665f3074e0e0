// Which attributes does an intermediate functional block device have?
import { attrs } from '../../codec/attrs.ts';

/** Kind `ifb` has no data of its own: qdiscs and redirects determine what it shapes. */
export const ifb = attrs('ifb', {});
