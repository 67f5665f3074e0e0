// No network of that name: how does a caller distinguish this from a network that is broken?
import { CniError, type CniErrorOptions, ErrorCode } from '../../cni/errors.ts';

/** CniError 7: there is no network of that name where it was looked for. */
export class NetworkNotFound extends CniError {
  /** Where it was looked for, and what was found there instead. */
  readonly where: string;

  /**
   * @param network its name
   * @param where see the property
   */
  constructor(network: string, where: string, options: CniErrorOptions = {}) {
    super(ErrorCode.invalidConfig, `Cannot find network "${network}"${where}`, options);
    this.where = where;
  }
}
