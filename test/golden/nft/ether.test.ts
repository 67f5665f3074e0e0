// Are hardware addresses in sets and rules described to the kernel byte for byte?
import { expect, test } from 'bun:test';
import { addElements } from '../../../src/netlink/nft/element.ts';
import { decide, isNotInSet, loadHeader, loadMeta, NF_DROP, REG } from '../../../src/netlink/nft/expr.ts';
import { addRule, addSet, decodeFields } from '../../../src/netlink/nft/table.ts';
import { bytesOf } from '../rtnl/captured.ts';
import { sent } from './sent.ts';

// `nft` sends the same but for the number of the set with elements, which only matters for sets without a name, and for
// longer user data of the set: it adds what it printed the types from.

const table = { family: 'bridge', name: 't' } as const;
const allowed = { table, name: 'allowed', key: ['ifname', 'ether_addr'] } as const;

// nft add set bridge t allowed '{ type ifname . ether_addr; }'
const SET = `
  54 00 00 00  nlmsg_len 84
  09 0a  nlmsg_type NFT_MSG_NEWSET
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  nfgen_family bridge
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_TABLE
    74 00  "t"
    00 00  padding
  0c 00 02 00  NFTA_SET_NAME
    61 6c 6c 6f 77 65 64 00  "allowed"
  08 00 03 00  NFTA_SET_FLAGS
    00 00 00 00  0
  08 00 04 00  NFTA_SET_KEY_TYPE
    00 00 0a 49  ifname (41) << 6 | ether_addr (9)
  08 00 05 00  NFTA_SET_KEY_LEN
    00 00 00 18  24
  08 00 0a 00  NFTA_SET_ID
    00 00 00 01  1
  0a 00 0d 00  NFTA_SET_USERDATA
    00 04 00 00 00 00
    00 00  padding
`;

test('addSet() sends a set of names and hardware addresses', () => {
  expect(sent(addSet(allowed))).toEqual(bytesOf(SET));
});

// nft add element bridge t allowed '{ "veth0" . 0a:58:0a:00:00:07 }'
const ELEMENT = `
  50 00 00 00  nlmsg_len 80
  0c 0a  nlmsg_type NFT_MSG_NEWSETELEM
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  nfgen_family bridge
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_ELEM_LIST_TABLE
    74 00  "t"
    00 00  padding
  0c 00 02 00  NFTA_SET_ELEM_LIST_SET
    61 6c 6c 6f 77 65 64 00  "allowed"
  28 00 03 80  NFTA_SET_ELEM_LIST_ELEMENTS {
    24 00 01 80  NFTA_LIST_ELEM {
      20 00 01 80  NFTA_SET_ELEM_KEY {
        1c 00 01 00  NFTA_DATA_VALUE
          76 65 74 68 30 00 00 00 00 00 00 00 00 00 00 00  "veth0"
          0a 58 0a 00 00 07 00 00  0a:58:0a:00:00:07
      }
    }
  }
`;

test('addElements() sends a name and a hardware address', () => {
  const element = { key: ['veth0', '0a:58:0a:00:00:07'] };
  expect(sent(...addElements(allowed, [element]))).toEqual(bytesOf(ELEMENT));
});

test('decodeFields() reads a name and a hardware address', () => {
  const bytes = new Uint8Array(24);
  bytes.set([0x76, 0x30]);
  bytes.set([0x0a, 0x58, 0x0a, 0, 0, 7], 16);
  expect(decodeFields(allowed.key, bytes)).toEqual(['v0', '0a:58:0a:00:00:07']);
});

// nft add rule bridge t p iifname . ether saddr != @allowed drop
const RULE = `
  e8 00 00 00  nlmsg_len 232
  06 0a  nlmsg_type NFT_MSG_NEWRULE
  05 0c  nlmsg_flags REQUEST|ACK|CREATE|APPEND
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  07  nfgen_family bridge
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_RULE_TABLE
    74 00  "t"
    00 00  padding
  06 00 02 00  NFTA_RULE_CHAIN
    70 00  "p"
    00 00  padding
  c4 00 04 80  NFTA_RULE_EXPRESSIONS {
    24 00 01 80  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 06  NFT_META_IIFNAME
        08 00 01 00  NFTA_META_DREG
          00 00 00 01  1
      }
    }
    34 00 01 80  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_EXPR_NAME
        70 61 79 6c 6f 61 64 00  "payload"
      24 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_PAYLOAD_DREG
          00 00 00 02  2
        08 00 02 00  NFTA_PAYLOAD_BASE
          00 00 00 00  NFT_PAYLOAD_LL_HEADER
        08 00 03 00  NFTA_PAYLOAD_OFFSET
          00 00 00 06  6
        08 00 04 00  NFTA_PAYLOAD_LEN
          00 00 00 06  6
      }
    }
    38 00 01 80  NFTA_LIST_ELEM {
      0b 00 01 00  NFTA_EXPR_NAME
        6c 6f 6f 6b 75 70 00  "lookup"
        00  padding
      28 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_LOOKUP_SREG
          00 00 00 01  1
        0c 00 01 00  NFTA_LOOKUP_SET
          61 6c 6c 6f 77 65 64 00  "allowed"
        08 00 04 00  NFTA_LOOKUP_SET_ID
          00 00 00 01  1
        08 00 05 00  NFTA_LOOKUP_FLAGS
          00 00 00 01  NFT_LOOKUP_F_INV
      }
    }
    30 00 01 80  NFTA_LIST_ELEM {
      0e 00 01 00  NFTA_EXPR_NAME
        69 6d 6d 65 64 69 61 74 65 00  "immediate"
        00 00  padding
      1c 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_IMMEDIATE_DREG
          00 00 00 00  NFT_REG_VERDICT
        10 00 02 80  NFTA_IMMEDIATE_DATA {
          0c 00 02 80  NFTA_DATA_VERDICT {
            08 00 01 00  NFTA_VERDICT_CODE
              00 00 00 00  NF_DROP
          }
        }
      }
    }
  }
`;

test('addRule() sends a match on an interface name and source MAC that are in no set', () => {
  const rule = [
    loadMeta(REG.first, 'iifname'),
    loadHeader('ll', REG.quarter(4), 6, 6),
    isNotInSet(allowed.name, REG.first),
    decide({ code: NF_DROP }),
  ];
  expect(sent(addRule(table, 'p', rule))).toEqual(bytesOf(RULE));
});
