// What is a network that can be run, with its version chosen and its plugins complete, which executables does it call, and which file holds one?

import { basename, extname } from 'node:path';
import type Compare from 'semver/functions/compare.js';
import {
  ConflistError,
  type ConflistParts,
  type PluginEntry,
  parseConflist,
  upgradeToConflist,
} from '../../cni/conflist.ts';
import { ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject, memberOf, parseObject } from '../../cni/json.ts';
import { isSpecVersion, SPEC_VERSIONS, type SpecVersion } from '../../cni/result.ts';

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

/** An executable that an entry of a list needs. */
interface PluginUse {
  readonly type: string;
  /** The entry's index in the list, from 0. */
  readonly index: number;
  /** `link`: the entry itself. `ipam`, `delegate`: what it calls for addresses, or instead of itself. */
  readonly as: 'link' | 'ipam' | 'delegate';
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
    return [{ type, index, as: 'link' as const }, ...called];
  });
}

/** A file that libcni does not load because its extension does not match its content. */
interface Mismatch {
  /** What is wrong; the text calls the file "it". */
  readonly problem: string;
  /** The key that shows what the file holds; absent if it is neither kind. */
  readonly key?: 'type' | 'plugins';
}

/**
 * libcni reads a list from a `.conflist` file only, and a single plugin configuration from a `.conf` or `.json` file only.
 * Undefined where content and extension agree, and for any other extension.
 */
export function findMismatch(file: string, content: JsonObject): Mismatch | undefined {
  const extension = extname(`x${basename(file)}`);
  if (!['.conflist', '.conf', '.json'].includes(extension)) return undefined;
  const single = isSinglePlugin(content);
  if (single !== (extension === '.conflist')) return undefined;
  if (single) return { problem: 'it is a single plugin configuration, not a list', key: 'type' };
  return content.plugins !== undefined
    ? { problem: 'it is a list, which belongs in a .conflist file', key: 'plugins' }
    : { problem: 'it has no "type"' };
}
