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

/** The network with a selection's requests added to its plugins: the device to the first, arguments to all. */
export function inject(list: Conflist, { cniArgs, deviceId }: Injected): Conflist {
  if (cniArgs === undefined && deviceId === undefined) return list;
  const plugins = list.plugins.map(({ conf }, i) => ({
    ...conf,
    ...(deviceId !== undefined && i === 0 ? { deviceID: deviceId, pciBusID: deviceId } : {}),
    ...(cniArgs === undefined ? {} : { args: withCniArgs(memberOf(conf, 'args'), cniArgs) }),
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

/** Existing arguments stay, unless the selection overrides them. */
function withCniArgs(args: unknown, cniArgs: JsonObject): JsonObject {
  const known = isObject(args) ? args : {};
  return { ...known, cni: { ...(isObject(known.cni) ? known.cni : {}), ...cniArgs } };
}
