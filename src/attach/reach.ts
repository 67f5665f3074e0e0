// Which networks does a container reach through the host, and who sees it there with which address?
import { isObject, type JsonObject } from '../cni/json.ts';
import { ANYWHERE } from '../net/ip.ts';

interface WayOut {
  readonly ipam: JsonObject | undefined;
  /** The plugin adds a default route. */
  readonly isDefaultGateway?: boolean;
  readonly ipMasq: boolean;
}

const DEFAULT_ROUTES: readonly unknown[] = Object.values(ANYWHERE);

/** Sentences for tools that explain a list. */
export function reachBeyondHost({ ipam, isDefaultGateway = false, ipMasq }: WayOut): string[] {
  const routes = Array.isArray(ipam?.routes) ? ipam.routes : [];
  const destinations = routes.flatMap(route => (isObject(route) ? [route.dst] : []));
  const everywhere = isDefaultGateway || destinations.some(one => DEFAULT_ROUTES.includes(one));
  if (!everywhere && !destinations.length)
    return ['containers reach no other network, since the list gives them no route to one'];
  const where = everywhere ? 'every network that it reaches' : destinations.map(String).join(', ');
  const how = ipMasq
    ? 'it forwards their packets with an address of its own'
    : 'it forwards their packets unchanged, so that replies come only from machines with a route back';
  return [
    `through the host, containers reach ${where}: ${how}`,
    'other machines reach a container by its own address only if they have a route to it through the host',
  ];
}
