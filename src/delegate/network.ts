// Which network results from a configuration and a selection?
import { type Conflist, parseNetwork } from '../chain/config/conflist.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';

/** Defaults for what a configuration leaves out. */
export interface Missing {
  readonly name: string;
  readonly cniVersion: string;
}

/** What a selection adds to a configuration. */
export interface Injected {
  readonly cniArgs: JsonObject | undefined;
  readonly deviceId: string | undefined;
}

/**
 * A network from the configuration of a plugin or a list inside another document.
 * @param what names it in the error
 * @throws CniError 7 (not a configuration), 1 (no version we speak)
 */
export function makeNetwork(config: JsonObject, missing: Missing, what: string): Conflist {
  const complete = {
    ...config,
    name: memberOf(config, 'name') || missing.name,
    cniVersion: memberOf(config, 'cniVersion') || missing.cniVersion,
  };
  return parseNetwork(JSON.stringify(complete), what);
}

/**
 * The network with a selection's arguments and device added to every plugin: those behind the first read the device too, as `rdma`
 * behind `sriov` does.
 */
export function inject(list: Conflist, { cniArgs, deviceId }: Injected, byPod: boolean): Conflist {
  const device = deviceId === undefined ? {} : { deviceID: deviceId, pciBusID: deviceId };
  if (cniArgs === undefined && !Object.keys(device).length) return list;
  const plugins = list.plugins.map(({ conf }) => ({
    ...conf,
    ...device,
    ...(cniArgs === undefined ? {} : { args: withCniArgs(conf, cniArgs, byPod) }),
  }));
  const source = JSON.parse(list.source) as JsonObject;
  return parseNetwork(JSON.stringify({ ...source, plugins }), `network "${list.name}"`);
}

/**
 * Refuses a network that calls this same plugin: that would never end.
 * @param own types under which this plugin is called
 * @throws CniError 7
 */
export function refuseRecursion(list: Conflist, own: readonly string[]): void {
  const again = list.plugins.find(({ type }) => own.includes(type));
  if (again === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot delegate to network "${list.name}": its plugin "${again.type}" is the delegating plugin itself`,
  );
}

/**
 * The arguments of a plugin. The configuration may override what its list says; a pod may not, in the arguments or as an option that
 * an argument of the same name would replace.
 */
function withCniArgs(conf: JsonObject, cniArgs: JsonObject, byPod: boolean): JsonObject {
  const [args, ipam] = [memberOf(conf, 'args'), memberOf(conf, 'ipam')];
  const known = isObject(args) ? args : {};
  const own = isObject(known.cni) ? known.cni : {};
  const isFixed = (key: string) =>
    memberOf(own, key) !== undefined ||
    memberOf(conf, key) !== undefined ||
    (key.toLowerCase() === 'ips' && isObject(ipam) && memberOf(ipam, 'addresses') !== undefined);
  const asked = Object.entries(cniArgs).filter(([key]) => !(byPod && isFixed(key)));
  return { ...known, cni: { ...own, ...Object.fromEntries(asked) } };
}
