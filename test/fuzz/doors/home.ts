// How does a door confine what it starts to its own directories?
import { isObject, type JsonObject } from '../../../src/cni/json.ts';
import { ground } from '../ground.ts';

/** Options that name a path: the author of a configuration may choose it, so the door does. */
const PLACES: Readonly<Record<string, string>> = {
  dataDir: 'data',
  stateDir: 'state',
  runDir: 'run',
  cniCacheDir: 'cache',
  cniDir: 'cache',
  confDir: 'conf',
  logFile: 'log',
  traceFile: 'trace',
  definitionsDir: 'definitions',
  binDir: 'bin',
};

/** Our directories, below the ground. */
export function environmentOf(): Record<string, string> {
  const { root } = ground();
  return {
    CATENA_RUN_DIR: `${root}/run`,
    CATENA_STATE_DIR: `${root}/state`,
    CATENA_CNI_CACHE_DIR: `${root}/cache`,
  };
}

/** The same configuration with every path option redirected to the ground. */
export function atHome(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(atHome);
  if (!isObject(value)) return value;
  const moved = Object.entries(value).map(([key, member]) => {
    const place = Object.entries(PLACES).find(([name]) => name.toLowerCase() === key.toLowerCase())?.[1];
    return [
      key,
      place === undefined || typeof member !== 'string' ? atHome(member) : `${ground().root}/${place}`,
    ];
  });
  const own: JsonObject = Object.fromEntries(moved);
  return own.type === 'host-local' ? { dataDir: `${ground().root}/data`, ...own } : own;
}
