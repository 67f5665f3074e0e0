// Are sets and maps described to the kernel, and read from it, byte for byte?
import { expect, test } from 'bun:test';
import { addSet, listSets, setMessage } from '../../../src/netlink/nft/table.ts';
import { answering, bodyOf, bytesOf } from '../rtnl/captured.ts';
import { sent } from './sent.ts';

// `nft` sends the same but for the number of the set, and for longer user data: it adds what it printed the types from.

const table = { family: 'inet', name: 't' } as const;

// nft add set inet t names '{ type ifname; }'
const NAMES = `
  54 00 00 00  nlmsg_len 84
  09 0a  nlmsg_type NFT_MSG_NEWSET
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_TABLE
    74 00  "t"
    00 00  padding
  0a 00 02 00  NFTA_SET_NAME
    6e 61 6d 65 73 00  "names"
    00 00  padding
  08 00 03 00  NFTA_SET_FLAGS
    00 00 00 00  0
  08 00 04 00  NFTA_SET_KEY_TYPE
    00 00 00 29  41
  08 00 05 00  NFTA_SET_KEY_LEN
    00 00 00 10  16
  08 00 0a 00  NFTA_SET_ID
    00 00 00 01  1
  0a 00 0d 00  NFTA_SET_USERDATA
    00 04 01 00 00 00
    00 00  padding
`;

// nft add map inet t ports '{ type inet_proto . inet_service : ipv4_addr . inet_service; }'
const PORTS = `
  68 00 00 00  nlmsg_len 104
  09 0a  nlmsg_type NFT_MSG_NEWSET
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_TABLE
    74 00  "t"
    00 00  padding
  0a 00 02 00  NFTA_SET_NAME
    70 6f 72 74 73 00  "ports"
    00 00  padding
  08 00 03 00  NFTA_SET_FLAGS
    00 00 00 08  8
  08 00 04 00  NFTA_SET_KEY_TYPE
    00 00 03 0d  781
  08 00 05 00  NFTA_SET_KEY_LEN
    00 00 00 08  8
  08 00 06 00  NFTA_SET_DATA_TYPE
    00 00 01 cd  461
  08 00 07 00  NFTA_SET_DATA_LEN
    00 00 00 08  8
  08 00 0a 00  NFTA_SET_ID
    00 00 00 01  1
  10 00 0d 00  NFTA_SET_USERDATA
    00 04 00 00 00 00 01 04 00 00 00 00
`;

// nft add map inet t verdicts '{ type ipv4_addr : verdict; }'
const VERDICTS = `
  68 00 00 00  nlmsg_len 104
  09 0a  nlmsg_type NFT_MSG_NEWSET
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_TABLE
    74 00  "t"
    00 00  padding
  0d 00 02 00  NFTA_SET_NAME
    76 65 72 64 69 63 74 73 00  "verdicts"
    00 00 00  padding
  08 00 03 00  NFTA_SET_FLAGS
    00 00 00 08  8
  08 00 04 00  NFTA_SET_KEY_TYPE
    00 00 00 07  7
  08 00 05 00  NFTA_SET_KEY_LEN
    00 00 00 04  4
  08 00 06 00  NFTA_SET_DATA_TYPE
    ff ff ff 00  0xffffff00
  08 00 07 00  NFTA_SET_DATA_LEN
    00 00 00 00  0
  08 00 0a 00  NFTA_SET_ID
    00 00 00 01  1
  0a 00 0d 00  NFTA_SET_USERDATA
    00 04 02 00 00 00
    00 00  padding
`;

test('addSet() sends a set', () => {
  expect(sent(addSet({ table, name: 'names', key: ['ifname'] }))).toEqual(bytesOf(NAMES));
});

test('addSet() sends a map of concatenations', () => {
  const data = ['ipv4_addr', 'inet_service'] as const;
  const ports = { table, name: 'ports', key: ['inet_proto', 'inet_service'], data } as const;
  expect(sent(addSet(ports))).toEqual(bytesOf(PORTS));
});

test('addSet() sends a map of verdicts', () => {
  const verdicts = { table, name: 'verdicts', key: ['ipv4_addr'], data: 'verdict' } as const;
  expect(sent(addSet(verdicts))).toEqual(bytesOf(VERDICTS));
});

test('the set message reads what it wrote', () => {
  const { header, attrs } = setMessage.decode(bodyOf(PORTS));
  expect(attrs).toMatchObject({
    name: 'ports',
    flags: 8,
    keyType: (12 << 6) | 13,
    keyLength: 8,
    dataLength: 8,
  });
  expect(setMessage.encode(header, attrs)).toEqual(bodyOf(PORTS));
});

// Linux 6.18 about the second set of the table
const LISTED = `
  ac 00 00 00  nlmsg_len 172
  09 0a  nlmsg_type NFT_MSG_NEWSET
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 28  res_id
  06 00 01 00  NFTA_SET_TABLE
    74 00  "t"
    00 00  padding
  0a 00 02 00  NFTA_SET_NAME
    70 6f 72 74 73 00  "ports"
    00 00  padding
  0c 00 10 00  NFTA_SET_HANDLE
    00 00 00 00 00 00 00 05  5
  08 00 03 00  NFTA_SET_FLAGS
    00 00 00 08  8
  08 00 04 00  NFTA_SET_KEY_TYPE
    00 00 03 0d  781
  08 00 05 00  NFTA_SET_KEY_LEN
    00 00 00 08  8
  08 00 06 00  NFTA_SET_DATA_TYPE
    00 00 01 cd  461
  08 00 07 00  NFTA_SET_DATA_LEN
    00 00 00 08  8
  2a 00 0d 00  NFTA_SET_USERDATA
    00 04 00 00 00 00 01 04 00 00 00 00 03 08 00 04 0d 00 00 00 01 00 04 08 00 04 0d 00 00 00 01 00 06 04 00 00 00 00
    00 00  padding
  04 00 09 00  attribute 9
    
  17 00 13 00  attribute 19
    30 78 66 66 66 66 66 66 66 66 38 32 35 30 37 66 34 30 00
    00  padding
  08 00 14 00  attribute 20
    00 00 00 01
`;

test('listSets() reads names', () => {
  const names = answering(
    () => [bodyOf(LISTED)],
    socket => listSets(socket, table),
  );
  expect(names).toEqual(['ports']);
});
