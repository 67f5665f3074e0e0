// Which network does a configuration make, once what a selection asks for is in it?
import { type Conflist, parseNetwork } from '../chain/conflist.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';

/** What a configuration gets where it says nothing. */
export interface Missing {
  readonly name: string;
  readonly cniVersion: string;
}

/** What a selection puts into a configuration. */
export interface Injected {
  readonly cniArgs: JsonObject | undefined;
  readonly deviceId: string | undefined;
}

/**
 * A network from the configuration of a plugin or a list that stands inside another document.
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

/** The network with what a selection asks for written into its links: the device into the first, arguments into all. */
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
 * Refuses a network that leads back to the one it is called by: that would never end.
 * @param own types under which this very plugin is called
 * @throws CniError 7
 */
export function refuseRecursion(list: Conflist, own: readonly string[]): void {
  const again = list.plugins.find(({ type }) => own.includes(type));
  if (again === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot delegate to network "${list.name}": its plugin "${again.type}" is the one that delegates`,
  );
}

/** What is there stays, unless the selection says otherwise. */
function withCniArgs(args: unknown, cniArgs: JsonObject): JsonObject {
  const known = isObject(args) ? args : {};
  return { ...known, cni: { ...(isObject(known.cni) ? known.cni : {}), ...cniArgs } };
}
