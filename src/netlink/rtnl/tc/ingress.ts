// Which options do the qdiscs that only hold filters have (`ingress` and `clsact`)?
import { attrs } from '../../codec/attrs.ts';

/** Neither has options: they shape nothing, filters are attached to them. */
export const ingressOptions = attrs('ingress', {});
