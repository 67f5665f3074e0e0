// Which settings does the flat file add to those of the request?
import { existsSync, readFileSync } from 'node:fs';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { isObject, type JsonObject, tryParse } from '../../src/cni/json.ts';

const PLACES = [
  '/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf',
  '/etc/cni/net.d/whereabouts.d/whereabouts.conf',
];

/**
 * `ipam` with what the flat file has in addition; the request's values win. Without a path, a missing file is no error.
 * @throws CniError 7 when the file cannot be used
 */
export function withFlatFile(ipam: JsonObject): JsonObject {
  const given = typeof ipam.configuration_path === 'string' && ipam.configuration_path;
  const path = given || PLACES.find(existsSync);
  if (!path) return ipam;
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot read "ipam.configuration_path" ${path}: ${(cause as Error).message}`,
      { cause },
    );
  }
  const flat = tryParse(text);
  if (!isObject(flat))
    throw new CniError(ErrorCode.invalidConfig, `Cannot use "${path}": it is not a JSON object`);
  const kubernetes = {
    ...(isObject(flat.kubernetes) && flat.kubernetes),
    ...(isObject(ipam.kubernetes) && ipam.kubernetes),
  };
  return { ...flat, ...ipam, kubernetes };
}
