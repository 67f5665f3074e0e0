// Which options does a first-in, first-out queue have?
import { u32 } from '../../codec/attrs.ts';
import { Writer } from '../../codec/bytes.ts';
import { struct } from '../../codec/message.ts';

/** linux/pkt_sched.h: struct tc_fifo_qopt { __u32 limit; } */
export const tcFifoQopt = struct('tc_fifo_qopt', [['limit', u32]]);

/** `TCA_OPTIONS` of kind `bfifo`: the struct itself, without attributes. */
export function bfifoToOptions(limitBytes: number): Uint8Array {
  const writer = new Writer();
  tcFifoQopt.encode(writer, { limit: limitBytes });
  return writer.finish();
}

/** Maximum length of the queue in bytes. */
export function bfifoFromOptions(options: Uint8Array): number {
  return tcFifoQopt.decode(options).limit;
}
