// Which network does a name or a path refer to?
import { readFileSync, statSync } from 'node:fs';
import type { Conflist } from '../chain/config/conflist.ts';
import {
  findPluginFiles,
  listNetworks,
  loadFile,
  loadNetwork,
  NetworkNotFound,
  unreadable,
} from '../chain/config/load.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { defined, type JsonObject, parseObject } from '../cni/json.ts';
import { findDefinition, type NetworkDefinition } from './definition-file.ts';
import { makeNetwork } from './network.ts';

/** Where to look for networks. */
export interface NetworkPlaces {
  /** Directory of configurations. */
  readonly confDir: string;
  /** Directory of NetworkAttachmentDefinitions; not searched when undefined. */
  readonly definitionsDir: string | undefined;
  /**
   * Reads a definition from the cluster: first for a network that a pod names, last for one that the configuration names. A
   * node must be able to start without the cluster.
   */
  readonly fetchDefinition?: (namespace: string, name: string) => Promise<NetworkDefinition | undefined>;
  /** Version for a definition whose configuration names none. */
  readonly cniVersion: string;
}

/** A network, and the name to show to users. */
export interface FoundNetwork {
  /** `namespace/name` of a definition, else the network's own name. */
  readonly label: string;
  readonly list: Conflist;
  /** Resource of which the network gets a device, as its definition says. */
  readonly resource?: string;
}

/** A network's name, and its origin. */
export interface AskedNetwork {
  /** Namespace of its definition. */
  readonly namespace: string;
  readonly name: string;
  /** A pod names it, not the configuration. */
  readonly byPod: boolean;
  /** Pods may name definitions of certain namespaces only. */
  readonly isolated: boolean;
}

/**
 * The network of that name: the configuration in its definition, else the one of that name in the directory
 * (multi-network specification 1.3, section 3.4.1). The directory has no namespaces. So a pod can use it only through a
 * definition if namespaces are isolated, or if there is a cluster that could hold one. Otherwise the pod could use any network
 * of the node by its plain name, including those that only another namespace has a definition of.
 * @throws CniError 7 when there is none, or it is broken
 */
export async function findNetwork(
  places: NetworkPlaces,
  { namespace, name, byPod, isolated }: AskedNetwork,
): Promise<FoundNetwork> {
  const fetched = byPod ? await places.fetchDefinition?.(namespace, name) : undefined;
  const definition = fetched ?? (await findLocal(places, namespace, name));
  if (definition) return networkOf(places, namespace, definition);
  if (byPod && (isolated || places.fetchDefinition)) throw undefinedFor(namespace, name, isolated);
  try {
    return { label: name, list: loadNetwork(places.confDir, name) };
  } catch (error) {
    const late = byPod ? undefined : await places.fetchDefinition?.(namespace, name);
    if (late === undefined) throw withDefinitions(error, places, namespace, name);
    return networkOf(places, namespace, late);
  }
}

/** The name may be that of a definition in another namespace. */
function withDefinitions(error: unknown, { definitionsDir }: NetworkPlaces, namespace: string, name: string) {
  if (!(error instanceof NetworkNotFound) || definitionsDir === undefined) return error;
  const where = `${error.where}, and no NetworkAttachmentDefinition "${namespace}/${name}" in "${definitionsDir}"`;
  return new NetworkNotFound(name, where, defined({ details: error.details, cause: error }));
}

function undefinedFor(namespace: string, name: string, isolated: boolean): CniError {
  const why = isolated ? '"namespaceIsolation" is set' : 'a cluster is configured';
  return new CniError(
    ErrorCode.invalidConfig,
    `Cannot use network "${namespace}/${name}" in a pod: there is no NetworkAttachmentDefinition of that name, and pods may not name a file ` +
      `of the node, since ${why}`,
    {
      details:
        'create the definition, without "config" to refer to the file, or name the network in the configuration',
    },
  );
}

async function findLocal(
  { definitionsDir }: NetworkPlaces,
  namespace: string,
  name: string,
): Promise<NetworkDefinition | undefined> {
  return definitionsDir === undefined ? undefined : findDefinition(definitionsDir, namespace, name);
}

function networkOf(
  { confDir, cniVersion }: NetworkPlaces,
  namespace: string,
  definition: NetworkDefinition,
): FoundNetwork {
  const { name, resource } = definition;
  const label = `${definition.namespace ?? namespace}/${name}`;
  if (definition.config.trim() === '')
    return { label, list: loadNetwork(confDir, name), ...defined({ resource }) };
  const what = `configuration of NetworkAttachmentDefinition "${label}"`;
  const list = makeNetwork(parseObject(definition.config, what), { name, cniVersion }, what);
  return { label, list, ...defined({ resource }) };
}

/**
 * The configuration of a chain whose plugins are in separate files: the `.conf` files in the directory of that name beside
 * `file`. Undefined if there are none.
 * @throws CniError 5 and 6 for an unreadable file: skipping one of its plugins would go unnoticed
 */
export function findChainBeside({
  file,
  name,
}: {
  readonly file: string;
  readonly name: string;
}): JsonObject | undefined {
  const plugins = findPluginFiles(file, name).map(path => parseObject(readConf(path), `"${path}"`));
  return plugins.length ? { name, plugins } : undefined;
}

function readConf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

/**
 * The network at a path: of that file, or the first usable one in that directory.
 * @throws CniError 5, 6 and 7 if the file is broken; 11 if a directory holds none yet
 */
export function loadPath(path: string): FoundNetwork {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return labelled(loadFile(path));
  const { networks, diagnostics } = listNetworks(path);
  const [first] = networks;
  if (first) return labelled(first.list);
  const details = diagnostics.map(({ error }) => error.message).join('; ');
  throw new CniError(ErrorCode.tryAgainLater, `Cannot find a network in "${path}": it contains none`, {
    details,
  });
}

function labelled(list: Conflist): FoundNetwork {
  return { label: list.name, list };
}
