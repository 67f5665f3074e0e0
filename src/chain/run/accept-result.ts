// Is a plugin's output a result that the next plugin can work with?
import { defined } from '../../cni/defined.ts';
import { type CalledPlugin, CniError, ErrorCode } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { parseReply } from '../../cni/reply.ts';
import { convertResult, resultVersionOf } from '../../cni/result.ts';
import type { SpecVersion } from '../../cni/version.ts';

/**
 * Checks what a plugin printed on ADD and converts it to the version of its list; unknown keys stay. The next plugin and the
 * caller then deal with one version only, while the reference passes on whatever it gets. The error names the plugin that
 * printed the result, not the one that would have failed on it.
 * @throws CniError 6 (no result, or a value of the wrong shape, with its path), 1 (a version that does not exist),
 *   7 (addresses that the list's version demands are missing)
 */
export function acceptResult(stdout: string, version: SpecVersion, plugin: CalledPlugin): JsonObject {
  const printed = parseReply(stdout, plugin);
  const what = `result of plugin "${plugin.type}"`;
  if (printed === undefined) {
    throw new CniError(
      ErrorCode.decodingFailure,
      `Cannot decode output of plugin "${plugin.type}": it printed no result`,
      { plugin },
    );
  }
  try {
    return convertResult({ ...printed, cniVersion: resultVersionOf(printed, version, what) }, version, what);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(error.code, error.message, {
      cause: error,
      ...defined({ details: error.details }),
      plugin,
    });
  }
}
