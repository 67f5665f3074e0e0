// How do the routes of an IPAM configuration appear in its result?
import { parseCidr, renderCidr } from '../net/cidr.ts';
import { parseIp, renderIp } from '../net/ip.ts';
import type { ResultRoute } from './result.ts';

/** A configured route; the schema `Route` has already checked its texts. */
export interface ConfiguredRoute {
  readonly dst: string;
  readonly gw?: string | undefined;
  readonly [more: string]: unknown;
}

/** The routes in canonical text: host bits are kept, an empty gateway is dropped, an IPv4-mapped one becomes IPv4. */
export function renderRoutes(routes: readonly ConfiguredRoute[]): ResultRoute[] {
  return routes.map(({ dst, gw, ...rest }) => ({
    ...rest,
    dst: renderCidr(parseCidr(dst)),
    ...(gw ? { gw: renderIp(parseIp(gw)) } : {}),
  }));
}
