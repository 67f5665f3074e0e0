// Are tables described to the kernel byte for byte as nft does?
import { expect, test } from 'bun:test';
import { nfgenmsg } from '../../../src/netlink/nft/message.ts';
import { addTable, tableMessage } from '../../../src/netlink/nft/table.ts';
import { bodyOf, bytesOf } from '../rtnl/captured.ts';
import { sent } from './sent.ts';

test('struct nfgenmsg has 4 bytes', () => {
  expect(nfgenmsg.size).toBe(4);
});

// nft add table inet t '{ comment "hello"; }' (nft leaves CREATE out)
const TABLE = `
  30 00 00 00  nlmsg_len 48
  00 0a  nlmsg_type NFT_MSG_NEWTABLE
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_TABLE_NAME
    74 00  "t"
    00 00  padding
  08 00 02 00  NFTA_TABLE_FLAGS
    00 00 00 00  0
  0c 00 06 00  NFTA_TABLE_USERDATA
    00 06 68 65 6c 6c 6f 00
`;

test('addTable() sends name and comment', () => {
  expect(sent(addTable({ family: 'inet', name: 't' }, 'hello'))).toEqual(bytesOf(TABLE));
});

test('the table message reads what it wrote', () => {
  const { header, attrs } = tableMessage.decode(bodyOf(TABLE));
  expect(attrs).toEqual({ name: 't', flags: 0, comment: 'hello' });
  expect(tableMessage.encode(header, attrs)).toEqual(bodyOf(TABLE));
});
