// How do the routes of an IPAM configuration appear in its result?
import { parseCidr, renderCidr } from '../net/cidr.ts';
import { parseIp, renderIp } from '../net/ip.ts';
import type { ResultRoute } from './result.ts';

/** A configured route; the schema `Route` has already checked its texts. */
export interface ConfiguredRoute {
  readonly dst: string;
  readonly gw?: string | undefined;
  readonly gws?: readonly string[] | undefined;
  readonly [more: string]: unknown;
}

/** The routes in canonical text: host bits are kept, an empty gateway is dropped, an IPv4-mapped one becomes IPv4. */
export function renderRoutes(routes: readonly ConfiguredRoute[]): ResultRoute[] {
  const render = (text: string) => renderIp(parseIp(text));
  return routes.map(({ dst, gw, gws, ...rest }) => ({
    ...rest,
    dst: renderCidr(parseCidr(dst)),
    ...(gw ? { gw: render(gw) } : {}),
    ...(gws?.length ? { gws: gws.filter(text => text !== '').map(render) } : {}),
  }));
}

/**
 * The routes with one gateway each: those of `gws`, then `gw` unless it is one of them. The routes of one destination become a multipath
 * route when they are added.
 */
export function spreadGateways(routes: readonly ResultRoute[]): ResultRoute[] {
  return routes.flatMap(({ gws = [], gw, ...route }) => {
    const gateways = [...new Set([...gws, ...(gw ? [gw] : [])])].filter(text => text !== '');
    return gateways.length ? gateways.map(gateway => ({ ...route, gw: gateway })) : [route];
  });
}
