// Which attributes does a dummy device have?
import { attrs } from '../../codec/attrs.ts';

/** Kind `dummy` has no data of its own: it drops what is sent to it. */
export const dummy = attrs('dummy', {});
