// How does it look when the kernel refuses a request?
import { renderErrno } from '../sys/errno.ts';

/** The kernel answered a request with an error. */
export class NetlinkError extends Error {
  override readonly name = 'NetlinkError';
  /** What was asked, in words: `create link "cni0" of kind bridge`. */
  readonly op: string;
  /** The kernel's number, positive; compare with `Errno`. */
  readonly errno: number;
  /** The kernel's own words (extended acknowledgement), if it had any. */
  readonly kernelMessage: string | undefined;

  constructor(op: string, errno: number, kernelMessage?: string) {
    super(`Cannot ${op}: ${renderErrno(errno)}${kernelMessage ? `, kernel says "${kernelMessage}"` : ''}`);
    this.op = op;
    this.errno = errno;
    this.kernelMessage = kernelMessage;
  }
}

/** True when the thrown value is the kernel's refusal with one of these numbers. */
export function isNetlinkError(thrown: unknown, ...errnos: readonly number[]): thrown is NetlinkError {
  return thrown instanceof NetlinkError && errnos.includes(thrown.errno);
}

/**
 * Runs a request, letting one kind of refusal pass: for creation that tolerates what exists and removal that tolerates
 * what is gone.
 */
export function tolerating<T>(errnos: readonly number[], request: () => T): T | undefined {
  try {
    return request();
  } catch (thrown) {
    if (isNetlinkError(thrown, ...errnos)) return undefined;
    throw thrown;
  }
}
