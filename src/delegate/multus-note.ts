// How does multus detach a pod that was attached here, after a way back to it?
//
// Its DEL reads which networks a pod has in a file beside the result cache, named after the container. Without that file it asks the
// API, which may not know the pod any longer, and then leaves the networks as they are.
import { join } from 'node:path';
import type { JsonObject } from '../cni/json.ts';
import { putFile, removeFile } from '../files/put-file.ts';
import type { RecordedNetwork } from './record.ts';

const WHAT = "multus's note of a pod";

/** A file of multus: its directory, and the container. */
interface Place {
  readonly cacheDir: string;
  readonly containerId: string;
}

/** Writes it, before any of the networks exists. @throws CniError 5 */
export function writeMultusNote(place: Place, networks: readonly RecordedNetwork[]): void {
  putFile(fileOf(place), JSON.stringify(networks.map(toDelegate)), { what: WHAT });
}

/** Removes it once no network is left, whichever of the two wrote it. @throws CniError 5 */
export function removeMultusNote(place: Place): void {
  removeFile(fileOf(place), WHAT);
}

function fileOf({ cacheDir, containerId }: Place): string {
  return join(cacheDir, containerId);
}

/** `DelegateNetConf` of multus: of `Conf` and `ConfList` it reads whether there are plugins, and calls them with `Bytes`. */
function toDelegate({ label, ifname, source, device }: RecordedNetwork): JsonObject {
  const conf = JSON.parse(source) as JsonObject;
  return {
    ...(Array.isArray(conf.plugins) ? { Conf: {}, ConfList: conf } : { Conf: conf, ConfList: {} }),
    Name: label,
    ifnameRequest: ifname,
    ...(device && { deviceID: device.id, resourceName: device.resource }),
    Bytes: Buffer.from(source).toString('base64'),
  };
}
