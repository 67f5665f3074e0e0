// Which keys of a configuration will not do what their author may expect?
import { isObject, type JsonObject } from '../../cni/json.ts';
import { isRuntimeKey } from '../run/request.ts';

/** A key, and what is wrong with it. */
export interface OddKey {
  readonly path: readonly (string | number)[];
  readonly problem: string;
}

/** Known keys of a list. They are case-sensitive, as in the reference; those of a plugin are not. */
const LIST_KEYS = [
  'name',
  'cniVersion',
  'cniVersions',
  'disableCheck',
  'disableGC',
  'loadOnlyInlinedPlugins',
  'plugins',
];
/** Keys of a single plugin configuration that apply to the list it becomes. */
const LIFTED_KEYS = ['cniVersions', 'disableCheck', 'disableGC'];

/**
 * Keys that differ from one of the list's only by letter case, and keys of plugins that only the runtime may set.
 * @param what `plugin` is a single plugin configuration that forms a network, `entry` one that belongs to a list
 */
export function findOddKeys(object: JsonObject, what: 'list' | 'plugin' | 'entry'): OddKey[] {
  if (what === 'entry') return findRuntimeKeys(object, []);
  if (what === 'plugin') return [...findNearMisses(object, LIFTED_KEYS), ...findRuntimeKeys(object, [])];
  const entries = Array.isArray(object.plugins) ? object.plugins : [];
  return [
    ...findNearMisses(object, LIST_KEYS),
    ...entries.flatMap((entry, i) => (isObject(entry) ? findRuntimeKeys(entry, ['plugins', i]) : [])),
  ];
}

function findNearMisses(object: JsonObject, known: readonly string[]): OddKey[] {
  return Object.keys(object).flatMap(key => {
    if (known.includes(key)) return [];
    const meant = known.find(one => one.toLowerCase() === key.toLowerCase());
    if (meant === undefined) return [];
    const problem = `key "${key}" is ignored: use "${meant}", keys are case-sensitive`;
    return [{ path: [key], problem }];
  });
}

function findRuntimeKeys(entry: JsonObject, path: readonly (string | number)[]): OddKey[] {
  return Object.keys(entry).flatMap(key => {
    if (isRuntimeKey(key))
      return [{ path: [...path, key], problem: `key "${key}" is set by the runtime: it is dropped` }];
    if (key !== 'runtimeConfig') return [];
    const problem = 'key "runtimeConfig" is set by the runtime: it is replaced when capabilities are passed';
    return [{ path: [...path, key], problem }];
  });
}
