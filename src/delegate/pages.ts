// How many pages may a list have?
import { CniError, ErrorCode } from '../cni/errors.ts';

/** Number of objects per reply to a list request. */
export const PAGE = 500;
/** Pages of half a million objects. A server that says "continue" for ever would otherwise be asked for ever. */
const MOST_PAGES = 1_000;

/** Counts the pages of one list. */
export class Pages {
  readonly #path: string;
  #count = 1;

  constructor(path: string) {
    this.#path = path;
  }

  /** @throws CniError 11 when there are too many */
  turn(): void {
    if (++this.#count <= MOST_PAGES) return;
    throw new CniError(
      ErrorCode.tryAgainLater,
      `Cannot list "${this.#path}": the server has sent ${MOST_PAGES} pages, and says that there are more`,
    );
  }
}
