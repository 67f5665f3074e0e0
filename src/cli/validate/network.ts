// Which network is in a file, and where are its parts?
import * as z from 'zod/mini';
import {
  type Conflist,
  ConflistError,
  completeNetwork,
  findMismatch,
  isSinglePlugin,
  parseConflist,
  parsePluginEntry,
  upgradeToConflist,
} from '../../chain/config/conflist.ts';
import { findPluginFiles } from '../../chain/config/load.ts';
import { attempt, ErrorCode } from '../../cni/errors.ts';
import { defined, foldKeys, isObject, type JsonObject } from '../../cni/json.ts';
import type { PluginAbout, PluginCatalog } from '../../cni/plugin-about.ts';
import { ConflistSchema, PluginConfig } from '../../cni/schemas.ts';
import {
  atKey,
  atValue,
  type Complaint,
  type Document,
  findShapeProblems,
  findUnknownKeys,
  type Path,
  readDocument,
} from './document.ts';
import type { Finding } from './finding.ts';

/** A plugin that a configuration names, with its description if it is one of ours. */
interface NamedPlugin {
  readonly type: string;
  readonly about: PluginAbout | undefined;
  /** Where its configuration is in that of the entry: `ipam` for an IPAM plugin. */
  readonly home: Path;
}

export interface PlacedPlugin {
  readonly document: Document;
  readonly path: Path;
  /** The configuration as written. */
  readonly conf: JsonObject;
  /** Undefined if the configuration does not name an executable. */
  readonly plugin: NamedPlugin | undefined;
  /** The IPAM plugin that the plugin calls. */
  readonly ipam: NamedPlugin | undefined;
  /** Both, as far as there are any. */
  readonly named: readonly NamedPlugin[];
}

/** A finding about a value of a plugin's configuration. */
export function inPlugin({ document, path }: PlacedPlugin, inner: Path, complaint: Complaint): Finding {
  return atValue(document, [...path, ...inner], complaint);
}

/** A finding about a key of it. */
export function atKeyIn({ document, path }: PlacedPlugin, inner: Path, complaint: Complaint): Finding {
  return atKey(document, [...path, ...inner], complaint);
}

/** A network as written, as far as it can be parsed. */
export interface PlacedNetwork {
  readonly document: Document;
  readonly name: string | undefined;
  readonly plugins: readonly PlacedPlugin[];
  /** The network as the runtime loads it; undefined if it refuses it. */
  readonly list: Conflist | undefined;
}

export interface ReadNetwork {
  readonly network?: PlacedNetwork;
  /** What is wrong with the files and the conflist itself; the plugins are checked elsewhere. */
  readonly findings: Finding[];
  /** Why the runtime refuses the conflist. It stops at the first mistake, which may be among the findings. */
  readonly refusal?: Finding;
}

/** The keys of the conflist itself; its plugins are checked one by one. */
const ListKeys = z.extend(ConflistSchema, {
  plugins: z.optional(z.array(z.unknown()).check(z.minLength(1, 'must contain at least one plugin'))),
});

/** Reads the network in a file, including plugins in separate files. */
export async function readNetwork(file: string, catalog: PluginCatalog): Promise<ReadNetwork> {
  const { document, findings } = readDocument(file);
  if (document === undefined) return { findings };
  const { value } = document;
  const single = isSinglePlugin(value);
  findings.push(...judgeExtension(document));
  if (!single) findings.push(...judgeListKeys(document));
  const beside = single ? [] : besideOf(document).map(readDocument);
  findings.push(...beside.flatMap(one => one.findings));
  const documents = beside.flatMap(one => one.document ?? []);
  const inlined = Array.isArray(value.plugins) ? value.plugins : [];
  const places: (readonly [Document, Path])[] = [
    ...(single ? [[document, []] as const] : inlined.map((_, i) => [document, ['plugins', i]] as const)),
    ...documents.map(one => [one, []] as const),
  ];
  const plugins: PlacedPlugin[] = [];
  for (const [from, path] of places) {
    const conf = path.reduce<unknown>((at, key) => (at as Record<string, unknown>)[key], from.value);
    if (isObject(conf)) plugins.push(await placePlugin({ document: from, path, conf }, catalog));
    else findings.push(atValue(from, path, ['error', 'shape', 'a plugin configuration is a JSON object']));
  }
  const { list, refusal } = complete(document, single, documents);
  const name = typeof value.name === 'string' ? value.name : undefined;
  return { network: { document, name, plugins, list }, findings, ...defined({ refusal }) };
}

/** Commands accept a file given by `--file` whatever its extension; a runtime that finds it in its directory does not. */
function judgeExtension(document: Document): Finding[] {
  const { problem, key } = findMismatch(document.file, document.value) ?? {};
  // Without a key that tells what the file contains, the missing "type" is reported instead.
  if (key === undefined) return [];
  const forPlugin = 'name the file .conf, or put the configuration in "plugins" of a list';
  const advice = key === 'type' ? forPlugin : 'rename the file';
  const message = `no runtime loads this file: ${problem}; ${advice}`;
  return [atKey(document, [key], ['error', 'file-name', message])];
}

function judgeListKeys(document: Document): Finding[] {
  const reading = { exact: true, open: ['plugins'] };
  const shape = findShapeProblems(ListKeys, document.value, reading).map(({ path, message }) => {
    return atValue(document, path, ['error', 'shape', message]);
  });
  const unknown = findUnknownKeys([ListKeys], document.value, reading).map(({ path, message }) => {
    return atKey(document, path, ['warning', 'unknown-key', message]);
  });
  return [...shape, ...unknown];
}

/** A conflist that the runtime refuses has none: it would not load them either. */
function besideOf({ file, value }: Document): string[] {
  const found = attempt(() => {
    const { name, loadOnlyInlinedPlugins } = parseConflist(value);
    return loadOnlyInlinedPlugins ? [] : findPluginFiles(file, name);
  });
  return found ?? [];
}

async function placePlugin(
  placed: Pick<PlacedPlugin, 'document' | 'path' | 'conf'>,
  catalog: PluginCatalog,
): Promise<PlacedPlugin> {
  const { type, ipam } = foldKeys(PluginConfig, placed.conf) as { type?: unknown; ipam?: unknown };
  const find = async (name: unknown, home: Path): Promise<NamedPlugin | undefined> => {
    if (typeof name !== 'string' || name === '') return undefined;
    return { type: name, about: await catalog.find(name), home };
  };
  const plugin = await find(type, []);
  const own = await find(isObject(ipam) ? ipam.type : undefined, ['ipam']);
  const called = own && plugin?.about?.completesIpam ? { ...own, about: undefined } : own;
  return { ...placed, plugin, ipam: called, named: [plugin, called].flatMap(one => one ?? []) };
}

function complete(
  document: Document,
  single: boolean,
  beside: readonly Document[],
): { list?: Conflist; refusal?: Finding } {
  let at = document;
  try {
    const parts = parseConflist(single ? upgradeToConflist(document.value) : document.value);
    const entries = beside.map(one => {
      at = one;
      return parsePluginEntry(one.value);
    });
    at = document;
    return { list: completeNetwork(parts, '{}', entries) };
  } catch (error) {
    if (!(error instanceof ConflistError)) throw error;
    const rule = error.code === ErrorCode.incompatibleVersion ? 'version' : 'shape';
    const path = single && error.path[0] === 'plugins' ? error.path.slice(2) : error.path;
    return { refusal: atValue(at, path, ['error', rule, error.message]) };
  }
}
