// Is a transaction opened and closed byte for byte as nft does?
import { expect, test } from 'bun:test';
import { encodeMessages, type Request } from '../../../src/netlink/codec.ts';
import { batchBegin, batchEnd } from '../../../src/netlink/nft/message.ts';
import { bytesOf } from '../rtnl/captured.ts';

const BEGIN = `
  14 00 00 00  nlmsg_len 20
  10 00  nlmsg_type NFNL_MSG_BATCH_BEGIN
  01 00  nlmsg_flags REQUEST
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  nfgen_family unspec
  00  version NFNETLINK_V0
  00 0a  res_id NFNL_SUBSYS_NFTABLES
`;
const BEGIN_AT_37 = `
  1c 00 00 00  nlmsg_len 28
  10 00  nlmsg_type NFNL_MSG_BATCH_BEGIN
  01 00  nlmsg_flags REQUEST
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  nfgen_family unspec
  00  version NFNETLINK_V0
  00 0a  res_id NFNL_SUBSYS_NFTABLES
  08 00 01 00  NFNL_BATCH_GENID
    00 00 00 25  37
`;
const END = `
  14 00 00 00  nlmsg_len 20
  11 00  nlmsg_type NFNL_MSG_BATCH_END
  01 00  nlmsg_flags REQUEST
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  nfgen_family unspec
  00  version NFNETLINK_V0
  00 0a  res_id NFNL_SUBSYS_NFTABLES
`;

test('batchBegin() and batchEnd() name the subsystem', () => {
  expect(messageFor(batchBegin())).toEqual(bytesOf(BEGIN));
  expect(messageFor(batchEnd())).toEqual(bytesOf(END));
});

test('batchBegin() names the expected generation', () => {
  expect(messageFor(batchBegin(37))).toEqual(bytesOf(BEGIN_AT_37));
});

function messageFor({ type, body }: Request): Uint8Array {
  return encodeMessages([{ type, flags: 1, seq: 0, body }]).slice();
}
