// Is a plugin's output a result that the next plugin can work with?
import { CniError, ErrorCode, type LinkFailure } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { parseReply } from '../cni/reply.ts';
import { convertResult, resultVersionOf } from '../cni/result.ts';
import type { SpecVersion } from '../cni/version.ts';

/**
 * Checks what a plugin printed on ADD and converts it to the version of its list; unknown keys stay. The next plugin and the
 * caller then deal with one version only, while the reference passes on whatever it gets. The error names the plugin that
 * printed the result, not the one that would have failed on it.
 * @throws CniError 6 (no result, or a value of the wrong shape, with its path), 1 (a version that does not exist),
 *   7 (addresses that the list's version demands are missing)
 */
export function acceptResult(stdout: string, version: SpecVersion, link: LinkFailure): JsonObject {
  const printed = parseReply(stdout, link);
  const what = `result of plugin "${link.link}"`;
  if (printed === undefined) {
    throw new CniError(
      ErrorCode.decodingFailure,
      `Cannot decode output of plugin "${link.link}": it printed no result`,
      { link },
    );
  }
  try {
    return convertResult({ ...printed, cniVersion: resultVersionOf(printed, version, what) }, version, what);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(error.code, error.message, {
      cause: error,
      ...(error.details === undefined ? {} : { details: error.details }),
      link,
    });
  }
}
