// How are the routes of an IPAM configuration written in its result?
import { parseCidr, renderCidr } from '../net/cidr.ts';
import { parseIp, renderIp } from '../net/ip.ts';
import type { ResultRoute } from './result.ts';

/** A configured route; its texts have been checked by the schema `Route`. */
export interface ConfiguredRoute {
  readonly dst: string;
  readonly gw?: string | undefined;
  readonly [more: string]: unknown;
}

/** The routes in canonical text: host bits stay, an empty gateway goes, an IPv4-mapped one becomes IPv4. */
export function renderRoutes(routes: readonly ConfiguredRoute[]): ResultRoute[] {
  return routes.map(({ dst, gw, ...rest }) => ({
    ...rest,
    dst: renderCidr(parseCidr(dst)),
    ...(gw ? { gw: renderIp(parseIp(gw)) } : {}),
  }));
}
