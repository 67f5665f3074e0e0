// How is a list read that may be long?
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { type ApiServer, ReplyTooLong } from './api-server.ts';

/** Number of objects per reply to a list request. */
const PAGE = 500;
/** Fewer, by this factor, where that many are too long. Twice is enough: etcd takes no object of more than 1.5 MiB. */
const FEWER = 8;
/** Objects asked for. A server that says "continue" for ever would otherwise be asked for ever. */
const MOST_ASKED = 500_000;

/** The kind of the objects is not installed in the cluster. */
export class NoSuchKind extends CniError {
  constructor(path: string) {
    super(ErrorCode.internal, `Cannot list "${path}": the cluster has no such kind`);
  }
}

/** A part of a list. */
export interface Page {
  readonly items: readonly JsonObject[];
  /** Version of the whole list. */
  readonly version: string;
}

/**
 * The pages of a list. One that is too long for a reply is asked for again with fewer objects: a program that may write some can make each large,
 * and those of all others would be unknown.
 * @throws CniError 11 when the server cannot be reached, or the list does not end; 999 when it refuses, or has no such kind
 */
export async function* listPages(
  server: Pick<ApiServer, 'ask'>,
  path: string,
  query: Readonly<Record<string, string>> = {},
): AsyncGenerator<Page> {
  let next = '';
  let limit = PAGE;
  for (let asked = 0; asked < MOST_ASKED; asked += limit) {
    const parameters = new URLSearchParams({ ...query, limit: `${limit}`, ...(next && { continue: next }) });
    let page: JsonObject | undefined;
    try {
      page = await server.ask('GET', `${path}?${parameters}`);
    } catch (thrown) {
      if (limit === 1 || !((thrown as Error).cause instanceof ReplyTooLong)) throw thrown;
      limit = Math.ceil(limit / FEWER);
      continue;
    }
    if (page === undefined) throw new NoSuchKind(path);
    const { continue: more, resourceVersion } = isObject(page.metadata) ? page.metadata : {};
    const items = Array.isArray(page.items) ? page.items.filter(isObject) : [];
    yield { items, version: typeof resourceVersion === 'string' ? resourceVersion : '' };
    if (typeof more !== 'string' || more === '') return;
    next = more;
    limit = Math.min(2 * limit, PAGE);
  }
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot list "${path}": ${MOST_ASKED} objects were asked for, and the server says that there are more`,
  );
}
