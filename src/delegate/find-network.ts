// Which network does a name or a path refer to, and what does a selection add to it?
import { type Dirent, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { type Conflist, parseNetwork } from '../chain/config/conflist.ts';
import {
  findPluginFiles,
  listNetworks,
  loadFile,
  loadNetwork,
  NetworkNotFound,
  readText,
} from '../chain/config/load.ts';
import { CniError, ErrorCode, invalidConfig, tryAgainLater } from '../cni/errors.ts';
import { defined, foldKey, isObject, type JsonObject, memberOf, parseObject } from '../cni/json.ts';
import { isDirectory } from '../files/read-file.ts';
import type { NetworkDefinition } from './cluster.ts';
import type { NetworkPlaces, RunnerOptions, Selection } from './runner.ts';

export interface FoundNetwork {
  /** `namespace/name` of a definition, else the network's own name. */
  readonly label: string;
  readonly list: Conflist;
  /** Resource of which the network gets a device, as its definition says. */
  readonly resource?: string;
}

interface AskedNetwork {
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
  const { definitionsDir: dir } = places;
  const definition = fetched ?? (dir === undefined ? undefined : await findDefinition(dir, namespace, name));
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
  return invalidConfig(
    `Cannot use network "${namespace}/${name}" in a pod: there is no NetworkAttachmentDefinition of that name, and pods may not name a file ` +
      `of the node, since ${why}`,
    {
      details:
        'create the definition, without "config" to refer to the file, or name the network in the configuration',
    },
  );
}

function networkOf(
  { confDir, cniVersion }: NetworkPlaces,
  namespace: string,
  definition: NetworkDefinition,
): FoundNetwork {
  const { name, resource } = definition;
  const label = `${definition.namespace ?? namespace}/${name}`;
  const what = `configuration of NetworkAttachmentDefinition "${label}"`;
  const isInFile = definition.config.trim() === '';
  const list = isInFile
    ? loadNetwork(confDir, name)
    : makeNetwork(parseObject(definition.config, what), { name, cniVersion }, what);
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
}: NonNullable<RunnerOptions['auxiliary']>): JsonObject | undefined {
  const plugins = findPluginFiles(file, name).map(path => parseObject(readText(path), `"${path}"`));
  return plugins.length ? { name, plugins } : undefined;
}

/**
 * The network at a path: of that file, or of the first usable file in that directory, by name, whatever its extension: so do multus and runtimes.
 * @throws CniError 5, 6 and 7 if the file is broken; 11 if a directory holds none yet
 */
export function loadPath(path: string): FoundNetwork {
  const { networks, diagnostics } = isDirectory(path)
    ? listNetworks(path)
    : { networks: [{ file: path, list: loadFile(path) }], diagnostics: [] };
  const [first] = networks.toSorted((a, b) => Buffer.compare(Buffer.from(a.file), Buffer.from(b.file)));
  if (first) return { label: first.list.name, list: first.list };
  const details = diagnostics.map(({ error }) => error.message).join('; ');
  throw tryAgainLater(`Cannot find a network in "${path}": it contains none`, {
    details,
  });
}

/**
 * A network from the configuration of a plugin or a list inside another document.
 * @param missing what it has in place of what the configuration leaves out
 * @param what names it in the error
 * @throws CniError 7 (not a configuration), 1 (no version we speak)
 */
export function makeNetwork(
  config: JsonObject,
  missing: Readonly<Record<'name' | 'cniVersion', string>>,
  what: string,
): Conflist {
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
export function inject(
  list: Conflist,
  { cniArgs, deviceId }: Pick<Selection, 'cniArgs' | 'deviceId'>,
  byPod: boolean,
): Conflist {
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
  throw invalidConfig(
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
    (foldKey(key) === 'ips' && isObject(ipam) && memberOf(ipam, 'addresses') !== undefined);
  const asked = Object.entries(cniArgs).filter(([key]) => !(byPod && isFixed(key)));
  return { ...known, cni: { ...own, ...Object.fromEntries(asked) } };
}

const RESOURCE_NAME = 'k8s.v1.cni.cncf.io/resourceName';

const KIND = 'NetworkAttachmentDefinition';

/**
 * The definition of that name, in the order of file names; JSON files come before YAML files. An unreadable file
 * does not hide the others.
 * @throws CniError 7 when there is none, but unreadable files might hold it; 5 when the directory cannot be read
 */
export async function findDefinition(
  dir: string,
  namespace: string,
  name: string,
): Promise<NetworkDefinition | undefined> {
  const broken: string[] = [];
  for (const file of definitionFiles(dir)) {
    try {
      const text = readFileSync(file, 'utf8');
      // Most files are of other networks, and parsing YAML is slow.
      if (!text.includes(name)) continue;
      const found = (await readDefinitions(file, text)).find(
        one => one.name === name && (one.namespace ?? namespace) === namespace,
      );
      if (found) return found;
    } catch (error) {
      broken.push(`"${file}": ${(error as Error).message}`);
    }
  }
  if (!broken.length) return undefined;
  throw invalidConfig(`Cannot find ${KIND} "${namespace}/${name}": some files of "${dir}" cannot be read`, {
    details: broken.join('; '),
  });
}

/** The definitions in a Kubernetes object: itself, or the items of a list; none in any other object. */
export function definitionsOf(object: unknown): NetworkDefinition[] {
  if (!isObject(object)) return [];
  if (Array.isArray(object.items)) return object.items.flatMap(definitionsOf);
  const metadata = isObject(object.metadata) ? object.metadata : {};
  const { name, namespace } = metadata;
  if (object.kind !== KIND || typeof name !== 'string') return [];
  const annotations = isObject(metadata.annotations) ? metadata.annotations : {};
  const resource = annotations[RESOURCE_NAME];
  const spec: JsonObject = isObject(object.spec) ? object.spec : {};
  return [
    {
      name,
      namespace: typeof namespace === 'string' && namespace !== '' ? namespace : undefined,
      config: typeof spec.config === 'string' ? spec.config : '',
      ...(typeof resource === 'string' && resource !== '' ? { resource } : {}),
    },
  ];
}

function definitionFiles(dir: string): string[] {
  let entries: Dirent[];
  try {
    entries = readdirSync(dir, { withFileTypes: true });
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    const text = `Cannot read definitions of networks in "${dir}": ${(cause as Error).message}`;
    throw new CniError(ErrorCode.ioFailure, text, { cause });
  }
  const named = (...extensions: string[]) =>
    entries
      .filter(entry => !entry.isDirectory() && extensions.includes(extname(entry.name)))
      .map(entry => join(dir, entry.name))
      .sort();
  return [...named('.json'), ...named('.yaml', '.yml')];
}

async function readDefinitions(file: string, text: string): Promise<NetworkDefinition[]> {
  if (extname(file) === '.json') return definitionsOf(JSON.parse(text));
  const { parseAllDocuments } = await import('yaml');
  return parseAllDocuments(text, { logLevel: 'error' }).flatMap(document => {
    const [problem] = 'errors' in document ? document.errors : [];
    if (problem) throw problem;
    return 'toJS' in document ? definitionsOf(document.toJS()) : [];
  });
}
