// What does nft display next to an nf_tables object, and where is it stored?
import type { Field } from '../codec/attrs.ts';

/** Maximum size of user data in the kernel (linux/netfilter/nf_tables.h, NFT_USERDATA_MAXLEN). */
const USERDATA_MAX_BYTES = 256;
/** nft accepts comments up to this length in characters; it could not load a longer one from its own listing. */
export const COMMENT_MAX_LENGTH = 127;

/** libnftnl/udata.h: the comment has type 0 in a table, chain, rule or element, and type 7 in a set. */
const COMMENT = 0;
/** libnftnl/udata.h, NFTNL_UDATA_SET_KEYBYTEORDER, NFTNL_UDATA_SET_DATABYTEORDER */
const SET_KEYBYTEORDER = 0;
const SET_DATABYTEORDER = 1;
/** nftables, enum byteorder */
const BYTEORDER = { mixed: 0, host: 1, big: 2 } as const;

/** One entry: a byte for its type, a byte for its length, then the value. */
interface Entry {
  readonly type: number;
  readonly value: Uint8Array;
}

/** User data that contains only a comment, as nft writes it. */
export const comment: Field<string> = {
  encode(writer, text) {
    const bytes = encodeEntries([{ type: COMMENT, value: zeroTerminated(text) }]);
    if (bytes.length > USERDATA_MAX_BYTES) {
      throw new Error(
        `Cannot encode comment "${text}": the kernel keeps ${USERDATA_MAX_BYTES - 3} bytes at most`,
      );
    }
    writer.bytes(bytes);
  },
  decode(bytes) {
    const value = decodeEntries(bytes).find(entry => entry.type === COMMENT)?.value ?? new Uint8Array();
    const end = value.indexOf(0);
    return new TextDecoder().decode(end < 0 ? value : value.subarray(0, end));
  },
};

/** Byte order in which nft should print the keys of a set, and the data of a map. */
export type ByteOrder = keyof typeof BYTEORDER;

/** User data of a set: without the byte order, nft would print numbers and names of single-field keys reversed. */
export function setUserdata(key: ByteOrder, data?: ByteOrder): Uint8Array {
  const entry = (type: number, order: ByteOrder): Entry => ({
    type,
    value: new Uint8Array(new Uint32Array([BYTEORDER[order]]).buffer),
  });
  return encodeEntries([
    entry(SET_KEYBYTEORDER, key),
    ...(data === undefined ? [] : [entry(SET_DATABYTEORDER, data)]),
  ]);
}

function encodeEntries(entries: readonly Entry[]): Uint8Array {
  return new Uint8Array(entries.flatMap(({ type, value }) => [type, value.length, ...value]));
}

function decodeEntries(bytes: Uint8Array): Entry[] {
  const entries: Entry[] = [];
  for (let at = 0; at + 2 <= bytes.length; ) {
    const length = bytes[at + 1] ?? 0;
    entries.push({ type: bytes[at] ?? 0, value: bytes.subarray(at + 2, at + 2 + length) });
    at += 2 + length;
  }
  return entries;
}

function zeroTerminated(text: string): Uint8Array {
  return new TextEncoder().encode(`${text}\0`);
}
