// Is this JSON a network that can be run, what are its parts, which version has it, which executables does it call, and which file holds one?

import { basename, extname } from 'node:path';
import type Compare from 'semver/functions/compare.js';
import { parseNetworkName } from '../../cni/env.ts';
import { CniError, type CniErrorOptions, ErrorCode } from '../../cni/errors.ts';
import { decode, isObject, type JsonObject, memberOf, parseObject } from '../../cni/json.ts';
import { isSpecVersion, SPEC_VERSIONS, type SpecVersion } from '../../cni/result.ts';
import { ListedPlugin } from '../../cni/schemas.ts';

/** A network, ready to run. */
export interface Conflist {
  readonly name: string;
  /** The version every plugin is called with. */
  readonly version: SpecVersion;
  readonly disableCheck: boolean;
  readonly disableGC: boolean;
  /** In order of ADD; never empty. */
  readonly plugins: readonly PluginEntry[];
  /**
   * The configuration as text, which {@link parseNetwork} parses to this same network. It is the file's text
   * unless some plugins came from files beside it. The result cache stores it.
   */
  readonly source: string;
  /** It stands for an older list that has no CHECK, and has those of its plugins that are ours. */
  readonly isRaised?: true;
}

export interface PluginEntry {
  /** Name of the executable, looked up in `CNI_PATH`. */
  readonly type: string;
  /** Capabilities that the entry declares, each true or false. */
  readonly capabilities: Readonly<Record<string, boolean>>;
  /** The entry as the user wrote it, including unknown keys; never modified. */
  readonly conf: JsonObject;
}

/** A conflist (SPEC "Configuration format") before its version is selected and plugins from separate files are added. */
export interface ConflistParts {
  readonly name: string;
  /** `cniVersion` as written; empty when absent. */
  readonly cniVersion: string;
  /** `cniVersions` as written; undefined when absent. */
  readonly cniVersions: readonly string[] | undefined;
  readonly disableCheck: boolean;
  readonly disableGC: boolean;
  readonly loadOnlyInlinedPlugins: boolean;
  /** Undefined when the list has no `plugins` key: all its plugins come from files next to it. */
  readonly plugins: readonly PluginEntry[] | undefined;
}

/** An invalid configuration, with the path of the offending value (`["plugins", 1]`). */
export class ConflistError extends CniError {
  readonly path: readonly (string | number)[];

  constructor(
    path: readonly (string | number)[],
    message: string,
    { code = ErrorCode.invalidConfig, ...options }: CniErrorOptions & { readonly code?: number } = {},
  ) {
    super(code, message, options);
    this.path = path;
  }
}

/**
 * Parses a conflist, checking its parts in the reference's order. Keys of the list itself are case-sensitive, keys of its
 * plugins are not, as in the reference.
 * @throws ConflistError (code 7) naming the key and the value found
 */
export function parseConflist(list: JsonObject): ConflistParts {
  const name = networkNameOf(list);
  const cniVersion = list.cniVersion === undefined ? '' : stringAt(list, 'cniVersion');
  return {
    name,
    cniVersion,
    cniVersions: list.cniVersions === undefined ? undefined : stringsAt(list, 'cniVersions'),
    disableCheck: booleanAt(list, 'disableCheck'),
    disableGC: booleanAt(list, 'disableGC'),
    loadOnlyInlinedPlugins: booleanAt(list, 'loadOnlyInlinedPlugins'),
    plugins: pluginsOf(list),
  };
}

/**
 * Parses the configuration of one plugin.
 * @param path its location in the document, for the error
 * @throws ConflistError (code 7)
 */
export function parsePluginEntry(conf: unknown, path: readonly (string | number)[] = []): PluginEntry {
  const what = path.length ? `plugin ${path.at(-1)} of the list` : 'plugin configuration';
  if (!isObject(conf)) {
    throw new ConflistError(path, `Cannot use ${what}: expected an object, found ${JSON.stringify(conf)}`);
  }
  let known: ListedPlugin;
  try {
    known = decode(ListedPlugin, conf, what);
  } catch (cause) {
    throw new ConflistError(path, (cause as Error).message, { cause });
  }
  return { type: known.type, capabilities: known.capabilities ?? {}, conf };
}

/** Keys of a single plugin configuration that apply to the list it becomes. */
export const LIFTED_KEYS: readonly string[] = ['cniVersions', 'disableCheck', 'disableGC'];

/**
 * Turns a single plugin configuration into a list of one. {@link LIFTED_KEYS} are lifted to the list, which the reference fails to do. `name` and `cniVersion` are the
 * plugin's own and match in any letter case, as in the reference.
 */
export function upgradeToConflist(conf: JsonObject): JsonObject {
  const lifted = LIFTED_KEYS.filter(key => conf[key] !== undefined);
  return {
    name: memberOf(conf, 'name'),
    cniVersion: memberOf(conf, 'cniVersion') ?? '',
    ...Object.fromEntries(lifted.map(key => [key, conf[key]])),
    plugins: [conf],
  };
}

function networkNameOf(list: JsonObject): string {
  try {
    return parseNetworkName(list.name);
  } catch (cause) {
    const { message, details } = cause as CniError;
    const found = details === undefined ? '' : `, found ${JSON.stringify(details)}`;
    throw new ConflistError(['name'], `Cannot use "name" of the list: ${message}${found}`, { cause });
  }
}

function pluginsOf(list: JsonObject): PluginEntry[] | undefined {
  const { plugins } = list;
  if (plugins === undefined) return undefined;
  if (!Array.isArray(plugins)) throw wrongType(list, 'plugins', 'an array of plugin configurations');
  if (!plugins.length) throw new ConflistError(['plugins'], 'Cannot use "plugins" of the list: it is empty');
  return plugins.map((conf, i) => parsePluginEntry(conf, ['plugins', i]));
}

function stringAt(list: JsonObject, key: string): string {
  const value = list[key];
  if (typeof value !== 'string') throw wrongType(list, key, 'a string');
  return value;
}

function stringsAt(list: JsonObject, key: string): string[] {
  const value = list[key];
  if (!Array.isArray(value) || !value.every(item => typeof item === 'string')) {
    throw wrongType(list, key, 'an array of strings');
  }
  return value;
}

function booleanAt(list: JsonObject, key: string): boolean {
  const value = list[key];
  if (value === undefined) return false;
  if (typeof value === 'boolean') return value;
  const word = typeof value === 'string' ? value.toLowerCase() : '';
  if (word === 'true' || word === 'false') return word === 'true';
  throw wrongType(list, key, 'true or false');
}

function wrongType(list: JsonObject, key: string, expected: string): ConflistError {
  return new ConflistError(
    [key],
    `Cannot use "${key}" of the list: expected ${expected}, found ${JSON.stringify(list[key])}`,
  );
}

export function declaredCapabilities({ plugins }: Pick<Conflist, 'plugins'>): string[] {
  const declared = plugins.flatMap(({ capabilities }) =>
    Object.keys(capabilities).filter(name => capabilities[name]),
  );
  return [...new Set(declared)];
}

/** An executable that an entry of a list needs. */
interface PluginUse {
  readonly type: string;
  /** The entry's index in the list, from 0. */
  readonly index: number;
  /** `plugin`: the entry itself. `ipam`, `delegate`: what it calls for addresses, or instead of itself. */
  readonly as: 'plugin' | 'ipam' | 'delegate';
}

/**
 * A network from the text of a list, or of a single plugin configuration, which becomes a list of one.
 * @throws CniError 6 (not JSON), 7 (not a list), 1 (no version we speak)
 */
export function parseNetwork(text: string, what = 'network configuration'): Conflist {
  const object = parseObject(text, what);
  if (!isSinglePlugin(object)) return completeNetwork(parseConflist(object), text, []);
  const list = upgradeToConflist(object);
  return completeNetwork(parseConflist(list), JSON.stringify(list), []);
}

/**
 * A network from the parts of a list and the plugins found beside it, which follow the inlined ones.
 * @throws ConflistError 7 without any plugin, 1 for a version we do not speak
 */
export function completeNetwork(
  parts: ConflistParts,
  text: string,
  beside: readonly PluginEntry[],
): Conflist {
  const plugins = [...(parts.plugins ?? []), ...beside];
  if (!plugins.length) throw new ConflistError([], 'Cannot use the list: it has no "plugins"');
  return {
    name: parts.name,
    version: selectVersion(parts),
    disableCheck: parts.disableCheck,
    disableGC: parts.disableGC,
    plugins,
    source: beside.length ? inlineAll(text, plugins) : text,
  };
}

/**
 * A network of one plugin that stays a plugin configuration, for libcni's single-plugin calls, which ignore the keys of
 * a list (`cniVersions`, `disableCheck`, `disableGC`) and record the configuration as it is.
 * @throws CniError 6 (not JSON), 7 (no plugin configuration, or without a name), 1 (no version we speak)
 */
export function parsePlugin(text: string): Conflist {
  const { name, cniVersion, plugins } = upgradeToConflist(parseObject(text, 'plugin configuration'));
  return completeNetwork(parseConflist({ name, cniVersion, plugins }), text, []);
}

/** A network from the text that {@link Conflist.source} had when its ADD was recorded. */
export function parseFrozen(text: string): Conflist {
  return isSinglePlugin(parseObject(text, 'configuration')) ? parsePlugin(text) : parseNetwork(text);
}

/** True for a plugin configuration rather than a list: only lists have `plugins`, only plugins have `type`. */
export function isSinglePlugin(object: JsonObject): boolean {
  return object.plugins === undefined && memberOf(object, 'type') !== undefined;
}

/**
 * The reference caches the list without the plugins found beside it, so its DEL from the cache omits them. Every implementation
 * understands text that contains them all.
 */
function inlineAll(text: string, plugins: readonly PluginEntry[]): string {
  const list: unknown = JSON.parse(text);
  return JSON.stringify({
    ...(isObject(list) ? list : {}),
    loadOnlyInlinedPlugins: true,
    plugins: plugins.map(({ conf }) => conf),
  });
}

/**
 * The highest version of `cniVersions` and `cniVersion` that this library speaks (SPEC "Version considerations").
 * Without `cniVersions` it is `cniVersion` itself, and 0.1.0 if that is missing too.
 * @throws CniError 7 for text that is not a version, 1 if no supported version remains
 */
export function selectVersion({ cniVersion, cniVersions }: ConflistParts): SpecVersion {
  if (cniVersions === undefined) {
    // As in the reference, "1.0" means 1.0.0 only in `cniVersions`.
    return cniVersion === '' ? '0.1.0' : known(cniVersion, 'cniVersion', [cniVersion]);
  }
  // semver compiles dozens of regular expressions when it is loaded: half a millisecond that most lists do not need.
  const compare: typeof Compare = require('semver/functions/compare.js');
  const asked = cniVersion === '' ? cniVersions : [...cniVersions, cniVersion];
  const [best] = asked
    .map((text, i) => normalise(text, i < cniVersions.length ? ['cniVersions', i] : ['cniVersion']))
    .filter(isSpecVersion)
    .sort((a, b) => compare(b, a));
  return known(best, 'cniVersions', asked);
}

function known(version: string | undefined, key: string, asked: readonly string[]): SpecVersion {
  if (version !== undefined && isSpecVersion(version)) return version;
  throw new ConflistError(
    [key],
    `Cannot use "${key}" of the list: found ${asked.map(v => JSON.stringify(v)).join(', ') || 'no version'}, supported versions are ${SPEC_VERSIONS.join(', ')}`,
    { code: ErrorCode.incompatibleVersion },
  );
}

/** One to three decimal parts, as the reference accepts them; semver requires three without leading zeros. */
function normalise(text: string, path: readonly (string | number)[]): string {
  const parts =
    text === '' ? [0, 1, 0] : text.split('.').map(part => (/^\d{1,9}$/.test(part) ? Number(part) : NaN));
  if (parts.length > 3 || parts.some(Number.isNaN)) {
    throw new ConflistError(
      path,
      `Cannot use CNI version ${JSON.stringify(text)}: expected up to three numbers separated by dots`,
    );
  }
  return [...parts, 0, 0].slice(0, 3).join('.');
}

/** Every executable by name, in the order of the entries; one that several entries need is listed for each. */
export function listUses({ plugins }: Pick<Conflist, 'plugins'>): PluginUse[] {
  return plugins.flatMap(({ type, conf }, index) => {
    const called = (['ipam', 'delegate'] as const).flatMap((as): PluginUse[] => {
      const section = memberOf(conf, as);
      const own = isObject(section) ? memberOf(section, 'type') : undefined;
      return typeof own === 'string' && own ? [{ type: own, index, as }] : [];
    });
    return [{ type, index, as: 'plugin' as const }, ...called];
  });
}

/**
 * libcni reads a list from a `.conflist` file only, and a single plugin configuration from a `.conf` or `.json` file only.
 * Undefined where content and extension agree, and for any other extension.
 * @returns what is wrong with "it", and the key that shows what the file holds, if it is of either kind
 */
export function findMismatch(file: string, content: JsonObject) {
  const extension = extname(`x${basename(file)}`);
  if (!['.conflist', '.conf', '.json'].includes(extension)) return undefined;
  const single = isSinglePlugin(content);
  if (single !== (extension === '.conflist')) return undefined;
  if (single) return { problem: 'it is a single plugin configuration, not a list', key: 'type' };
  return content.plugins !== undefined
    ? { problem: 'it is a list, which belongs in a .conflist file', key: 'plugins' }
    : { problem: 'it has no "type"' };
}
