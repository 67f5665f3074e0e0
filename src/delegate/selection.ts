// What may be requested about one network of a container, as an object or in the text of an annotation? (Multi-network specification 1.3, section 4.1)
import * as z from 'zod/mini';
import { attempt, type CniError, decodingFailure, invalidConfig } from '../cni/errors.ts';
import { decode, defined, type JsonObject, parseJson, quote } from '../cni/json.ts';
import { Bandwidth, optionalFlag, optionalObject, optionalText, PortMapping } from '../cni/schemas.ts';
import { findIfnameProblem, parseMac, renderMac } from '../net/interface.ts';
import { findCidr, findIp } from '../net/ip.ts';
import type { Selection } from './runner.ts';

/** Bounds of one selection: each address and port costs requests to the kernel. */
export const MOST_ADDRESSES = 32;
const MOST_PORTS = 1_024;

/** An element of the annotation `k8s.v1.cni.cncf.io/networks`, and of "networks" and "delegates" of the configuration. */
export const NetworkSelection = z.looseObject({
  /** Name of the network: of its NetworkAttachmentDefinition, or of its file in `confDir`. */
  name: optionalText,
  /** Namespace of the definition; the pod's unless given. */
  namespace: optionalText,
  /** The network's configuration itself, instead of a name: of a plugin or a list. */
  config: optionalObject,
  /** Name of the interface in the container. */
  interface: optionalText,
  /** The same as `interface`. */
  ifname: optionalText,
  /** What `interface` was called once. */
  interfaceRequest: optionalText,
  /** Addresses, with or without prefix length; the capability `ips` and `IP` of CNI_ARGS. */
  ips: z.optional(
    z
      .array(z.string().check(z.refine(isAddress, 'must be an address')))
      .check(z.maxLength(MOST_ADDRESSES, `must have no more than ${MOST_ADDRESSES} addresses`)),
  ),
  /** Hardware address of six bytes in colon, hyphen or dotted notation; the capability `mac` and `MAC` of CNI_ARGS. */
  mac: z.optional(
    z
      .string()
      .check(
        z.refine(text => text === '' || attempt(() => parseMac(text)), 'must be six bytes in hexadecimal'),
      ),
  ),
  /** GUID of eight bytes; the capability `infinibandGUID`. */
  'infiniband-guid': z.optional(
    z
      .string()
      .check(z.regex(/^$|^([0-9a-fA-F]{2}[:-]){7}[0-9a-fA-F]{2}$/, 'must be eight bytes in hexadecimal')),
  ),
  /** Ports of the host that lead here; the capability `portMappings`. */
  portMappings: z.optional(
    z.array(PortMapping).check(z.maxLength(MOST_PORTS, `must have no more than ${MOST_PORTS} ports`)),
  ),
  /** Limits; the capability `bandwidth`. */
  bandwidth: z.optional(Bandwidth),
  /** This network has the container's default route: by these gateways, or when empty by what it sets itself. */
  'default-route': z.optional(
    z
      .array(z.string().check(z.refine(text => findIp(text) !== undefined, 'must be an address')))
      .check(z.maxLength(MOST_ADDRESSES, `must have no more than ${MOST_ADDRESSES} addresses`)),
  ),
  /** Goes into `args.cni` of every plugin. */
  'cni-args': optionalObject,
  /** Device to use, only in the runner's configuration: the capability `deviceID`, and `deviceID` and `pciBusID` of every plugin. */
  deviceID: optionalText,
  /** Name of an IPAMClaim in the pod's namespace: the network gives the addresses that are in it, or those it gives get in. */
  'ipam-claim-reference': optionalText,
  /** What the runtime offers (`runtimeConfig`) reaches this network: true for the default network, else false. */
  runtimeConfig: optionalFlag,
});
export type NetworkSelection = z.output<typeof NetworkSelection>;

const NAMESPACE = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const OBJECT_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;
/** Name of a Kubernetes object, or of a network on disk, which allows more characters. */
const NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;

export function findNameProblem(namespace: string | undefined, name: string): string | undefined {
  if (namespace !== undefined && !NAMESPACE.test(namespace)) {
    return `namespace ${JSON.stringify(namespace)} must contain only lower-case letters, digits and "-"`;
  }
  if (NAME.test(name)) return undefined;
  return `network name ${JSON.stringify(name)} must contain only letters, digits, "_", "." and "-"`;
}

/**
 * Reads one selection in JSON form.
 * @param what names its place in the error
 * @param from its origin: a pod must not bring its own configuration, which would be run as root
 * @throws CniError 7 naming the member
 */
export function parseSelection(value: unknown, what: string, from: 'pod' | 'configuration'): Selection {
  const known = decode(NetworkSelection, value, what);
  const ifname = known.interface || known.ifname || known.interfaceRequest || undefined;
  const problem = findProblem(known, ifname, from);
  if (problem !== undefined) throw invalidConfig(`Cannot use ${what}: ${problem}`);
  return {
    name: known.name ?? '',
    namespace: known.namespace || undefined,
    config: known.config,
    ifname,
    capabilityArgs: capabilityArgsOf(known),
    defaultRoute: known['default-route'],
    cniArgs: known['cni-args'],
    deviceId: known.deviceID || undefined,
    getsRuntimeConfig: known.runtimeConfig,
    claim: known['ipam-claim-reference'] || undefined,
  };
}

/** A network by name, without further requests. */
export function selectByName(name: string, namespace?: string, ifname?: string): Selection {
  // The record of a pod has this as text, by which the network is found again: the order of the members stays.
  return { namespace, ifname, capabilityArgs: {}, name };
}

/**
 * A network by its configuration, without further requests.
 * @param name used if the configuration has none
 */
export function selectByConfig(config: JsonObject, name: string): Selection {
  return { name, config, capabilityArgs: {} };
}

function findProblem(
  known: NetworkSelection,
  ifname: string | undefined,
  from: 'pod' | 'configuration',
): string | undefined {
  if (!known.name && known.config === undefined) return 'it has no "name"';
  if (known.config !== undefined && from === 'pod')
    return 'it has "config", which is allowed only in the runner\'s own configuration';
  const nameProblem = known.config
    ? undefined
    : findNameProblem(known.namespace || undefined, known.name ?? '');
  if (nameProblem) return nameProblem;
  const claimProblem = findClaimProblem(known);
  if (claimProblem) return claimProblem;
  const { ingressRate, ingressBurst, egressRate, egressBurst } = known.bandwidth ?? {};
  if ((ingressBurst && !ingressRate) || (egressBurst && !egressRate)) {
    return `"bandwidth" has a burst without a rate, found ${JSON.stringify(known.bandwidth)}`;
  }
  const ifnameProblem = ifname && findIfnameProblem(ifname);
  return ifnameProblem ? `interface name ${JSON.stringify(ifname)}: ${ifnameProblem}` : undefined;
}

function findClaimProblem({ 'ipam-claim-reference': claim, ips }: NetworkSelection): string | undefined {
  if (!claim) return undefined;
  const what = `"ipam-claim-reference" ${JSON.stringify(claim)}`;
  if (!OBJECT_NAME.test(claim)) return `${what} is not a valid Kubernetes object name`;
  return ips?.length ? `${what} and "ips" both request addresses` : undefined;
}

function capabilityArgsOf(known: NetworkSelection): JsonObject {
  const { ips, mac, portMappings, bandwidth } = known;
  const guid = known['infiniband-guid'];
  return {
    ...(ips?.length ? { ips } : {}),
    // Third-party plugins read colons only.
    ...(mac ? { mac: renderMac(parseMac(mac)) } : {}),
    ...(guid ? { infinibandGUID: guid } : {}),
    ...(portMappings?.length ? { portMappings } : {}),
    ...defined({ bandwidth }),
  };
}

function isAddress(text: string): boolean {
  return findIp(text) !== undefined || findCidr(text) !== undefined;
}

/** Annotation that names further networks of a pod. */
export const NETWORKS_ANNOTATION = 'k8s.v1.cni.cncf.io/networks';

/** Annotation that names a network to replace the default one. */
export const DEFAULT_NETWORK_ANNOTATION = 'v1.multus-cni.io/default-network';

/** Characters: Kubernetes allows no more for all annotations of an object. */
const MAX_TEXT = 256 * 1024;
/** Characters of it that an error repeats. */
const MAX_SHOWN = 1_000;
/** Levels of arrays and objects, of which a selection itself has four. */
const MAX_DEPTH = 32;

/**
 * Parses both grammars: `[namespace/]name[@interface],…`, and an array of JSON objects. Empty text selects none. Text of any size
 * costs no more than a look at it.
 * @param what names the text in the error (`annotation "k8s.v1.cni.cncf.io/networks"`)
 * @param most networks that it may name, which `maxNetworks` says of a pod
 * @throws CniError 7 (6 for broken JSON) naming the element
 */
export function parseSelections(text: string, what: string, most = Number.POSITIVE_INFINITY): Selection[] {
  if (text.length > MAX_TEXT) throw unusable(what, `it has ${text.length} characters, more than ${MAX_TEXT}`);
  if (/[[{"]/.test(text)) return parseObjects(text, what, most);
  const items = text.split(',').flatMap(item => item.trim() || []);
  refuseMany(items.length, what, most);
  return items.map(item => parseShort(item, what));
}

function refuseMany(count: number, what: string, most: number): void {
  if (count <= most) return;
  throw unusable(
    what,
    `it names ${count} networks; a pod may ask for ${most} in all ("maxNetworks" of the runner)`,
  );
}

function parseObjects(text: string, what: string, most: number): Selection[] {
  if (isDeeperThan(MAX_DEPTH, text))
    throw unusable(what, `its JSON is nested more than ${MAX_DEPTH} levels deep`);
  const details = text.slice(0, MAX_SHOWN);
  const value = parseJson(text, (problem, cause) => {
    const message = `Cannot decode ${what}: ${problem}`;
    return decodingFailure(message, { details, cause });
  });
  if (!Array.isArray(value)) throw unusable(what, 'expected an array of objects', details);
  refuseMany(value.length, what, most);
  return value.map((one, i) => parseSelection(one, `element ${i} of ${what}`, 'pod'));
}

/** Whether JSON has more levels: what copies or prints it later has a stack for each of them. */
function isDeeperThan(most: number, text: string): boolean {
  let depth = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]+|\\.)*"?|[[{\]}]/g)) {
    if (token === '[' || token === '{') depth++;
    else if (token === ']' || token === '}') depth--;
    if (depth > most) return true;
  }
  return false;
}

function unusable(what: string, problem: string, details?: string): CniError {
  return invalidConfig(`Cannot use ${what}: ${problem}`, defined({ details }));
}

function parseShort(item: string, what: string): Selection {
  const [place = '', ifname, ...moreIfnames] = item.split('@');
  const parts = place.split('/');
  const name = parts.at(-1) ?? '';
  const namespace = parts.length > 1 ? parts[0] : undefined;
  const problem =
    moreIfnames.length || parts.length > 2
      ? 'expected [namespace/]name[@interface]'
      : (findNameProblem(namespace, name) ?? (ifname === undefined ? undefined : findIfnameProblem(ifname)));
  if (problem !== undefined) {
    throw unusable(`${quote(item)} of ${what}`, problem);
  }
  return selectByName(name, namespace, ifname);
}
