// Which entry of the runner says the same as one of multus?
import { foldKeys, type JsonObject } from '../../src/cni/json.ts';
import { CatenaConf, isWithoutEffect, nodePaths, placesOf, RUNNER } from './config.ts';

/** An entry of ours. */
export interface FromMultus {
  readonly entry: JsonObject;
  /** Keys that have nothing to say here. */
  readonly dropped: readonly string[];
}

/** Keys with a path that multus's daemon may see elsewhere than the node. */
const PATHS = ['clusterNetwork', 'readinessindicatorfile', 'binDir', 'logFile'];

/**
 * Translates an entry: paths are the node's, and what follows from the name `multus` is said.
 * @param kubeconfig of the account that the runner is to have
 * @throws CniError 7 for an entry that the runner would refuse
 */
export function fromMultus(entry: JsonObject, kubeconfig: string): FromMultus {
  const folded = foldKeys(CatenaConf, entry) as JsonObject;
  const dropped = Object.keys(folded).filter(isWithoutEffect);
  const onNode = nodePaths(folded as CatenaConf);
  const translated = (value: unknown): unknown => (typeof value === 'string' ? onNode(value) : value);
  const {
    type: _,
    name: _name,
    cniVersion: _version,
    chrootDir: _root,
    cniConf: _unread,
    ...others
  } = folded;
  const said = Object.entries(others).filter(([key]) => !dropped.includes(key));
  return {
    dropped,
    entry: {
      type: RUNNER,
      ...Object.fromEntries(
        said.map(([key, value]) => [key, PATHS.includes(key) ? translated(value) : value]),
      ),
      ...(Array.isArray(folded.defaultNetworks)
        ? { defaultNetworks: folded.defaultNetworks.map(translated) }
        : {}),
      kubeconfig,
      confDir: translated(folded.confDir) || '/etc/cni/multus/net.d',
      cniDir: placesOf(folded as CatenaConf, {}).cacheDir,
    },
  };
}
