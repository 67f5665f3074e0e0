// Is this JSON a valid network configuration list, and what are its parts?
import { parseNetworkName } from './env.ts';
import { CniError, type CniErrorOptions, ErrorCode } from './errors.ts';
import { decode, isObject, type JsonObject, memberOf } from './json.ts';
import { ListedPlugin } from './schemas.ts';

/** One plugin of a conflist. */
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

/**
 * Turns a single plugin configuration into a list of one. Keys that have a meaning only in a list (`cniVersions`,
 * `disableCheck`, `disableGC`) are lifted to the list, which the reference fails to do. `name` and `cniVersion` are the
 * plugin's own and match in any letter case, as in the reference.
 */
export function upgradeToConflist(conf: JsonObject): JsonObject {
  const lifted = ['cniVersions', 'disableCheck', 'disableGC'].filter(key => conf[key] !== undefined);
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
