// What does a whole netlink message look like: envelope, fixed header, attributes?
import type { AttrSet } from './attrs.ts';
import { s32, u16, u32 } from './fields.ts';
import { type Struct, struct } from './struct.ts';
import { align4, Writer } from './writer.ts';

/** linux/netlink.h, nlmsg_type */
export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;

/** linux/netlink.h, nlmsg_flags */
export const NLM_F_REQUEST = 0x1;
export const NLM_F_MULTI = 0x2;
export const NLM_F_ACK = 0x4;
export const NLM_F_ECHO = 0x8;
export const NLM_F_DUMP_INTR = 0x10;
export const NLM_F_CAPPED = 0x100;
export const NLM_F_ACK_TLVS = 0x200;
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;
export const NLM_F_DUMP = 0x300;

/** struct nlmsghdr { __u32 nlmsg_len; __u16 nlmsg_type; __u16 nlmsg_flags; __u32 nlmsg_seq; __u32 nlmsg_pid; } */
export const nlmsghdr = struct('nlmsghdr', [
  ['length', u32],
  ['type', u16],
  ['flags', u16],
  ['seq', u32],
  ['pid', u32],
]);

/** struct nlmsgerr { int error; struct nlmsghdr msg; } */
export const nlmsgerr = struct('nlmsgerr', [
  ['error', s32],
  ['request', nlmsghdr],
]);

/** A message without its meaning. */
export interface Envelope {
  readonly type: number;
  readonly flags: number;
  readonly seq: number;
  readonly body: Uint8Array;
}

/** What follows the envelope in one family of messages: a fixed header, then attributes. */
export interface Layout<H, A> {
  encode(header: Partial<H>, attributes: A): Uint8Array;
  decode(body: Uint8Array): { header: H; attrs: A };
}

/** Ties a header struct and an attribute set together, for example `ifinfomsg` and the link attributes. */
export function layout<H extends object, A extends object>(header: Struct<H>, set: AttrSet<A>): Layout<H, A> {
  return {
    encode(values, attributes) {
      const writer = new Writer();
      header.encode(writer, values);
      writer.pad();
      set.encode(writer, attributes, attributes);
      return writer.finish();
    },
    decode(body) {
      return {
        header: header.decode(body),
        attrs: set.decode(body.subarray(Math.min(align4(header.size), body.length)), {}),
      };
    },
  };
}

/** Puts messages into one buffer, each behind its envelope and padded. */
export function encodeMessages(messages: readonly Envelope[]): Uint8Array {
  const writer = new Writer();
  for (const { type, flags, seq, body } of messages) {
    nlmsghdr.encode(writer, { length: nlmsghdr.size + body.length, type, flags, seq, pid: 0 });
    writer.bytes(body);
    writer.pad();
  }
  return writer.finish();
}

/** Takes a buffer of messages apart. The bodies are views: copy what must outlive the buffer. */
export function* eachMessage(buffer: Uint8Array): Generator<Envelope> {
  for (let at = 0; at < buffer.length; ) {
    const header = nlmsghdr.decode(buffer.subarray(at));
    if (header.length < nlmsghdr.size || at + header.length > buffer.length) {
      throw new Error(
        `Cannot decode message at byte ${at}: it claims ${header.length} of ${buffer.length - at} bytes`,
      );
    }
    const { type, flags, seq } = header;
    yield { type, flags, seq, body: buffer.subarray(at + nlmsghdr.size, at + header.length) };
    at += align4(header.length);
  }
}
