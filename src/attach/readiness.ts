// Could ADD attach a container now?
import { CniError, describeError, ErrorCode } from '../cni/errors.ts';

/**
 * Runs what STATUS of a main plugin looks for.
 * @param examine throws what would make ADD fail, and changes nothing
 * @throws CniError 50
 */
export function requireReadiness(examine: () => void): void {
  try {
    examine();
  } catch (cause) {
    throw new CniError(ErrorCode.unavailable, `Cannot attach containers: ${describeError(cause)}`, { cause });
  }
}
