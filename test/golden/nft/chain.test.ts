// Are chains described to the kernel, and read from it, byte for byte?
import { expect, test } from 'bun:test';
import { addChain, chainMessage, listChains, NF_IP_PRI_NAT_DST } from '../../../src/netlink/nft/table.ts';
import { answering, bodyOf, bytesOf } from '../rtnl/captured.ts';
import { sent } from './sent.ts';

const table = { family: 'inet', name: 't' } as const;

// nft add chain inet t sub
const REGULAR = `
  24 00 00 00  nlmsg_len 36
  03 0a  nlmsg_type NFT_MSG_NEWCHAIN
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_CHAIN_TABLE
    74 00  "t"
    00 00  padding
  08 00 03 00  NFTA_CHAIN_NAME
    73 75 62 00  "sub"
`;

// nft add chain inet t pre '{ type nat hook prerouting priority -100; }'
const BASE = `
  40 00 00 00  nlmsg_len 64
  03 0a  nlmsg_type NFT_MSG_NEWCHAIN
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_CHAIN_TABLE
    74 00  "t"
    00 00  padding
  08 00 03 00  NFTA_CHAIN_NAME
    70 72 65 00  "pre"
  08 00 07 00  NFTA_CHAIN_TYPE
    6e 61 74 00  "nat"
  14 00 04 80  NFTA_CHAIN_HOOK {
    08 00 01 00  NFTA_HOOK_HOOKNUM
      00 00 00 00  0
    08 00 02 00  NFTA_HOOK_PRIORITY
      ff ff ff 9c  -100
  }
`;

test('addChain() sends a chain to jump to', () => {
  expect(sent(addChain(table, 'sub'))).toEqual(bytesOf(REGULAR));
});

test('addChain() sends a chain with its hook', () => {
  const base = { type: 'nat', hook: 'prerouting', priority: NF_IP_PRI_NAT_DST } as const;
  expect(sent(addChain(table, 'pre', base))).toEqual(bytesOf(BASE));
});

test('the chain message reads what it wrote', () => {
  const { header, attrs } = chainMessage.decode(bodyOf(BASE));
  expect(attrs).toEqual({ table: 't', name: 'pre', type: 'nat', hook: { number: 0, priority: -100 } });
  expect(chainMessage.encode(header, attrs)).toEqual(bodyOf(BASE));
});

// Linux 6.18 about the same chains
const LISTED = [
  `
  38 00 00 00  nlmsg_len 56
  03 0a  nlmsg_type NFT_MSG_NEWCHAIN
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 28  res_id
  06 00 01 00  NFTA_CHAIN_TABLE
    74 00  "t"
    00 00  padding
  08 00 03 00  NFTA_CHAIN_NAME
    73 75 62 00  "sub"
  0c 00 02 00  NFTA_CHAIN_HANDLE
    00 00 00 00 00 00 00 01  1
  08 00 06 00  NFTA_CHAIN_USE
    00 00 00 03  3
`,
  `
  64 00 00 00  nlmsg_len 100
  03 0a  nlmsg_type NFT_MSG_NEWCHAIN
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 28  res_id
  06 00 01 00  NFTA_CHAIN_TABLE
    74 00  "t"
    00 00  padding
  08 00 03 00  NFTA_CHAIN_NAME
    70 72 65 00  "pre"
  0c 00 02 00  NFTA_CHAIN_HANDLE
    00 00 00 00 00 00 00 02  2
  14 00 04 00  NFTA_CHAIN_HOOK {
    08 00 01 00  NFTA_HOOK_HOOKNUM
      00 00 00 00  0
    08 00 02 00  NFTA_HOOK_PRIORITY
      ff ff ff 9c  -100
  }
  08 00 05 00  NFTA_CHAIN_POLICY
    00 00 00 01  1
  08 00 07 00  NFTA_CHAIN_TYPE
    6e 61 74 00  "nat"
  08 00 0a 00  NFTA_CHAIN_FLAGS
    00 00 00 01  1
  08 00 06 00  NFTA_CHAIN_USE
    00 00 00 01  1
`,
];

test('listChains() reads name and hook, and leaves out other tables', () => {
  const list = (name: string) =>
    answering(
      () => LISTED.map(bodyOf),
      socket => listChains(socket, { family: 'inet', name }),
    );
  expect(list('t')).toEqual([
    { name: 'sub' },
    { name: 'pre', base: { type: 'nat', hook: 'prerouting', priority: -100 } },
  ]);
  expect(list('other')).toEqual([]);
});
