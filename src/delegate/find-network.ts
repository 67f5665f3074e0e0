// Which network does a name or a path mean?
import { readFileSync, statSync } from 'node:fs';
import { findPluginFiles, unreadable } from '../chain/conf-files.ts';
import type { Conflist } from '../chain/conflist.ts';
import { listNetworks, loadFile, loadNetwork } from '../chain/load.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type JsonObject, parseObject } from '../cni/json.ts';
import { findDefinition, type NetworkDefinition } from './definition-file.ts';
import { makeNetwork } from './network.ts';

/** Where networks are looked for. */
export interface NetworkPlaces {
  /** Directory of configurations. */
  readonly confDir: string;
  /** Directory of NetworkAttachmentDefinitions; none is looked at when undefined. */
  readonly definitionsDir: string | undefined;
  /**
   * Asks the cluster for a definition: first for what a pod names, last for what the configuration names. A node must
   * come up without the cluster.
   */
  readonly fetchDefinition?: (namespace: string, name: string) => Promise<NetworkDefinition | undefined>;
  /** Version for a definition whose configuration names none. */
  readonly cniVersion: string;
}

/** A network, and what people call it. */
export interface FoundNetwork {
  /** `namespace/name` of a definition, else the network's own name. */
  readonly label: string;
  readonly list: Conflist;
}

/**
 * The network of that name: the configuration in its definition, else the one of that name in the directory
 * (multi-network specification 1.3, section 3.4.1).
 * @param byPod whether a pod names it
 * @throws CniError 7 when there is none, or it is broken
 */
export async function findNetwork(
  places: NetworkPlaces,
  namespace: string,
  name: string,
  byPod: boolean,
): Promise<FoundNetwork> {
  const fetched = byPod ? await places.fetchDefinition?.(namespace, name) : undefined;
  const definition = fetched ?? (await findLocal(places, namespace, name));
  if (definition) return defined(places, namespace, definition);
  try {
    return { label: name, list: loadNetwork(places.confDir, name) };
  } catch (error) {
    const late = byPod ? undefined : await places.fetchDefinition?.(namespace, name);
    if (late === undefined) throw error;
    return defined(places, namespace, late);
  }
}

async function findLocal(
  { definitionsDir }: NetworkPlaces,
  namespace: string,
  name: string,
): Promise<NetworkDefinition | undefined> {
  return definitionsDir === undefined ? undefined : findDefinition(definitionsDir, namespace, name);
}

function defined(
  { confDir, cniVersion }: NetworkPlaces,
  namespace: string,
  definition: NetworkDefinition,
): FoundNetwork {
  const { name } = definition;
  const label = `${definition.namespace ?? namespace}/${name}`;
  if (definition.config.trim() === '') return { label, list: loadNetwork(confDir, name) };
  const what = `configuration of NetworkAttachmentDefinition "${label}"`;
  return { label, list: makeNetwork(parseObject(definition.config, what), { name, cniVersion }, what) };
}

/**
 * The configuration of a chain whose links stand in files of their own: the `.conf` files in the directory of that name beside
 * `file`. Undefined when there are none.
 * @throws CniError 5 and 6 for a file that cannot be read: a link that is left out would be missed by nobody
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
 * The network that a path means: of that file, or the first usable one of that directory.
 * @throws CniError 5, 6 and 7 as the file is broken; 11 when a directory holds none yet
 */
export function loadPath(path: string): FoundNetwork {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return labelled(loadFile(path));
  const { networks, diagnostics } = listNetworks(path);
  const [first] = networks;
  if (first) return labelled(first.list);
  const details = diagnostics.map(({ error }) => error.message).join('; ');
  throw new CniError(ErrorCode.tryAgainLater, `Cannot find a network in "${path}": it holds none`, {
    details,
  });
}

function labelled(list: Conflist): FoundNetwork {
  return { label: list.name, list };
}
