// How is a refusal by the kernel represented?
import { renderErrno } from '../sys/errno.ts';

/** An error that the kernel returned for a request. */
export class NetlinkError extends Error {
  override readonly name = 'NetlinkError';
  /** The requested operation, human-readable: `create link "cni0" of kind bridge`. */
  readonly op: string;
  /** The kernel's error number, positive; compare with `Errno`. */
  readonly errno: number;
  /** The kernel's own message (extended acknowledgement), if any. */
  readonly kernelMessage: string | undefined;

  constructor(op: string, errno: number, kernelMessage?: string) {
    super(`Cannot ${op}: ${renderErrno(errno)}${kernelMessage ? `, kernel says "${kernelMessage}"` : ''}`);
    this.op = op;
    this.errno = errno;
    this.kernelMessage = kernelMessage;
  }
}

/** True when the thrown value is a refusal by the kernel with one of these numbers. */
export function isNetlinkError(thrown: unknown, ...errnos: readonly number[]): thrown is NetlinkError {
  return thrown instanceof NetlinkError && errnos.includes(thrown.errno);
}

/**
 * Runs a request and ignores refusals with these numbers: for creation that tolerates existing objects and deletion that
 * tolerates missing ones.
 */
export function tolerating<T>(errnos: readonly number[], request: () => T): T | undefined {
  try {
    return request();
  } catch (thrown) {
    if (isNetlinkError(thrown, ...errnos)) return undefined;
    throw thrown;
  }
}
