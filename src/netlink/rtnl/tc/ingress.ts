// What do the qdiscs take that only hold filters: `ingress` and `clsact`?
import { attrs } from '../../codec/attrs.ts';

/** Neither has options: they shape nothing, and filters attach to them. */
export const ingressOptions = attrs('ingress', {});
