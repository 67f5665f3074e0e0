// Which of a pod's networks has the default route?

import { invalidConfig } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import {
  CURRENT_VERSION,
  convertResult,
  defaultFamilyOf,
  parseResult,
  type Result,
  resultVersionOf,
} from '../cni/result.ts';
import { FAMILIES, type Family, findIp, type Ip, renderIp, sameIp } from '../net/ip.ts';
import type { PlannedNetwork } from './plan.ts';
import type { RunnerOptions } from './runner.ts';

/** Changes to the default routes of one network after its ADD. */
interface RouteTask {
  /** Families whose default routes are to be removed. */
  readonly remove: readonly Family[];
  /** Gateways of the default routes to add. */
  readonly add: readonly Ip[];
}

/** Tracks which network has the default route while the networks of one pod are attached, in order. */
export class DefaultRoutes {
  /** Index of the network chosen by a request or the configuration. */
  readonly #chosen: Record<Family, number | undefined>;
  /** Index of a network that lost its own. */
  readonly #lost: Record<Family, number | undefined> = { 4: undefined, 6: undefined };
  readonly #networks: readonly PlannedNetwork[];
  #found: Record<Family, number | undefined> = { 4: undefined, 6: undefined };

  /** @throws CniError 7 when two networks request it, or one by several gateways of a family */
  constructor(networks: readonly PlannedNetwork[], wanted: RunnerOptions['defaultRoute']) {
    this.#networks = networks;
    for (const network of networks) refuseSeveralGateways(network);
    this.#chosen = { 4: chosenFor(4, networks, wanted), 6: chosenFor(6, networks, wanted) };
  }

  /** True if no network needs changes: there is only one, without requested gateways. */
  get isIdle(): boolean {
    return this.#networks.length < 2 && gatewaysOf(this.#networks[0]).length === 0;
  }

  /**
   * The changes to make after a network is attached, given the families in which it already has a default route.
   * @throws CniError 7 when it requested to keep one that it does not set, and another network has lost its own for it
   */
  after(index: number, present: readonly Family[]): RouteTask {
    const add = gatewaysOf(this.#networks[index]);
    for (const family of FAMILIES) {
      const isMissing = index === this.#chosen[family] && !present.includes(family);
      if (isMissing && this.#networks[index]?.selection.defaultRoute?.length === 0) this.#choosesNone(family);
      if (present.includes(family)) this.#found[family] ??= index;
    }
    const remove = FAMILIES.filter(family => {
      const isReplaced = add.some(ip => ip.family === family);
      const owner = this.#chosen[family] ?? this.#found[family];
      return isReplaced || (present.includes(family) && owner !== index);
    });
    for (const family of remove) if (present.includes(family)) this.#lost[family] ??= index;
    return { remove, add };
  }

  #choosesNone(family: Family): void {
    const [asking, lost] = [this.#chosen[family], this.#lost[family]].map(
      index => index !== undefined && JSON.stringify(this.#networks[index]?.label),
    );
    this.#chosen[family] = undefined;
    if (lost === false) return;
    throw invalidConfig(
      `Cannot give the IPv${family} default route to network ${asking}: it sets none, and its "default-route" names no gateway; the pod would lose that of network ${lost}`,
    );
  }
}

export function editRoutes(result: JsonObject, { remove, add }: RouteTask): JsonObject {
  if (!remove.length && !add.length) return result;
  const version = resultVersionOf(result, CURRENT_VERSION);
  const { routes = [], ...rest }: Result = parseResult(result, version);
  const kept = routes.filter(route => {
    const family = defaultFamilyOf(route);
    return family === undefined || !remove.includes(family);
  });
  const added = add.map(ip => ({ dst: ip.family === 4 ? '0.0.0.0/0' : '::/0', gw: renderIp(ip) }));
  const edited = [...kept, ...added];
  const raised = { ...rest, ...(edited.length ? { routes: edited } : {}), cniVersion: CURRENT_VERSION };
  return convertResult(raised, version);
}

/** Interfaces of the container that a result names, including the attachment's own. */
export function interfacesOf(result: JsonObject, { ifname, netns }: PlannedNetwork['attachment']): string[] {
  const { interfaces } = result;
  const named = Array.isArray(interfaces)
    ? interfaces.filter(isObject).filter(one => one.sandbox === netns && typeof one.name === 'string')
    : [];
  return [...new Set([ifname, ...named.map(one => String(one.name))])];
}

function gatewaysOf(network: PlannedNetwork | undefined): Ip[] {
  const named = (network?.selection.defaultRoute ?? []).flatMap(text => findIp(text) ?? []);
  return named.filter((ip, i) => i === named.findIndex(one => sameIp(one, ip)));
}

/** @throws CniError 7 */
function refuseSeveralGateways(network: PlannedNetwork): void {
  for (const family of FAMILIES) {
    const gateways = gatewaysOf(network).filter(ip => ip.family === family);
    if (gateways.length < 2) continue;
    throw invalidConfig(
      `Cannot give the IPv${family} default route to network ${JSON.stringify(network.label)}: its "default-route" names ${gateways.map(renderIp).join(' and ')}; only one may be its gateway`,
    );
  }
}

/** Requests of the pod override the configuration; an empty list of gateways requests both families. */
function chosenFor(
  family: Family,
  networks: readonly PlannedNetwork[],
  wanted: RunnerOptions['defaultRoute'],
): number | undefined {
  const asked = networks.flatMap((network, index) => {
    const { defaultRoute } = network.selection;
    if (defaultRoute === undefined) return [];
    return !defaultRoute.length || gatewaysOf(network).some(ip => ip.family === family) ? [index] : [];
  });
  if (asked.length > 1) {
    const names = asked.map(index => JSON.stringify(networks[index]?.label)).join(' and ');
    throw invalidConfig(
      `Cannot give the IPv${family} default route to networks ${names}: only one may have it`,
    );
  }
  if (asked.length) return asked[0];
  const name = wanted[family];
  if (name === undefined) return undefined;
  const index = networks.findIndex(
    ({ attachment, label, list }) => attachment.ifname === name || list.name === name || label === name,
  );
  return index < 0 ? undefined : index;
}
