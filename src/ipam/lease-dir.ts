// Where does a configuration have the leases of its network? For tools, which read configurations that may be invalid.
import { join } from 'node:path';
import { isObject, type JsonObject } from '../cni/json.ts';
import { DEFAULT_DATA_DIR } from './lease-store.ts';

/** The directory; `dataDir` counts only if it is a text. */
export function leaseDirOf({ ipam }: JsonObject, network: string): string {
  const dataDir = isObject(ipam) && typeof ipam.dataDir === 'string' ? ipam.dataDir : '';
  return join(dataDir || DEFAULT_DATA_DIR, network);
}
