// What does a set or map of another program contain, whatever the types of its keys are?
import { Errno } from '../../sys/errno.ts';
import { tolerating } from '../errors.ts';
import type { NetlinkSocket } from '../socket.ts';
import type { Verdict } from './data.ts';
import { elementMessage } from './element.ts';
import { NftMsg, nftRequest, renderTable, type Table } from './message.ts';

/** linux/netfilter/nf_tables.h, enum nft_set_elem_flags */
const NFT_SET_ELEM_INTERVAL_END = 1;
const NFT_SET_ELEM_CATCHALL = 2;

/** One element, as bytes. */
export interface RawElement {
  /** Empty for the element that stands for all other keys. */
  readonly key: Uint8Array;
  /** What a map with verdicts has for the key. */
  readonly verdict?: Verdict;
  /** What another map has for it. */
  readonly value?: Uint8Array;
  /** The key is the first that an interval no longer contains. */
  readonly endsInterval: boolean;
  /** The element is about more than this key: ranges of a concatenation, or conditions of its own. */
  readonly isComplex: boolean;
  /** Names the owner, or says what the element is for. */
  readonly comment?: string;
}

/** All elements; none when the set does not exist. Same as: `nft list set|map <family> <table> <name>` */
export function listRawElements(socket: NetlinkSocket, table: Table, set: string): RawElement[] {
  const op = `list set "${set}" of table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETSETELEM, elementMessage, table.family, { table: table.name, set });
  const bodies = tolerating([Errno.ENOENT], () => socket.dump(request)) ?? [];
  return bodies.flatMap(body =>
    (elementMessage.decode(body).attrs.elements ?? []).map(
      ({ key, data: own, flags = 0, expression, end, comment }) => {
        const { verdict, value } = own ?? {};
        return {
          key: key?.value ?? new Uint8Array(),
          endsInterval: (flags & NFT_SET_ELEM_INTERVAL_END) !== 0,
          isComplex: end !== undefined || expression !== undefined || (flags & NFT_SET_ELEM_CATCHALL) !== 0,
          ...(verdict ? { verdict: { ...verdict, code: verdict.code ?? 0 } } : {}),
          ...(value ? { value } : {}),
          ...(comment === undefined ? {} : { comment }),
        };
      },
    ),
  );
}
