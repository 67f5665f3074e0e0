// Do matches in the words of nft become what nft makes of them, byte for byte?
import { expect, test } from 'bun:test';
import { matchFamily } from '../../../src/netlink/nft/expr.ts';
import { parseMatch } from '../../../src/netlink/nft/match.ts';
import { addRule } from '../../../src/netlink/nft/table.ts';
import { bytesOf } from '../rtnl/captured.ts';
import { sent } from './sent.ts';

// nft add rule inet t pre meta nfproto ipv4 ip saddr != 10.0.0.1-10.0.0.9
const OUTSIDE = `
  e8 00 00 00  nlmsg_len 232
  06 0a  nlmsg_type NFT_MSG_NEWRULE
  05 0c  nlmsg_flags REQUEST|ACK|CREATE|APPEND
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_RULE_TABLE
    74 00  "t"
    00 00  padding
  08 00 02 00  NFTA_RULE_CHAIN
    70 72 65 00  "pre"
  c4 00 04 80  NFTA_RULE_EXPRESSIONS {
    24 00 01 80  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 0f  NFT_META_NFPROTO
        08 00 01 00  NFTA_META_DREG
          00 00 00 01  1
      }
    }
    2c 00 01 80  NFTA_LIST_ELEM {
      08 00 01 00  NFTA_EXPR_NAME
        63 6d 70 00  "cmp"
      20 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_CMP_SREG
          00 00 00 01  1
        08 00 02 00  NFTA_CMP_OP
          00 00 00 00  NFT_CMP_EQ
        0c 00 03 80  NFTA_CMP_DATA {
          05 00 01 00  NFTA_DATA_VALUE
            02  NFPROTO_IPV4
            00 00 00  padding
        }
      }
    }
    34 00 01 80  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_EXPR_NAME
        70 61 79 6c 6f 61 64 00  "payload"
      24 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_PAYLOAD_DREG
          00 00 00 01  1
        08 00 02 00  NFTA_PAYLOAD_BASE
          00 00 00 01  NFT_PAYLOAD_NETWORK_HEADER
        08 00 03 00  NFTA_PAYLOAD_OFFSET
          00 00 00 0c  12
        08 00 04 00  NFTA_PAYLOAD_LEN
          00 00 00 04  4
      }
    }
    3c 00 01 80  NFTA_LIST_ELEM {
      0a 00 01 00  NFTA_EXPR_NAME
        72 61 6e 67 65 00  "range"
        00 00  padding
      2c 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_RANGE_SREG
          00 00 00 01  1
        08 00 02 00  NFTA_RANGE_OP
          00 00 00 01  NFT_RANGE_NEQ
        0c 00 03 80  NFTA_RANGE_FROM_DATA {
          08 00 01 00  NFTA_DATA_VALUE
            0a 00 00 01  10.0.0.1
        }
        0c 00 04 80  NFTA_RANGE_TO_DATA {
          08 00 01 00  NFTA_DATA_VALUE
            0a 00 00 09  10.0.0.9
        }
      }
    }
  }
`;

test('parseMatch() of all addresses but those of a range', () => {
  const [match = []] = parseMatch(4, 'ip saddr != 10.0.0.1-10.0.0.9');
  const rule = addRule({ family: 'inet', name: 't' }, 'pre', [...matchFamily(4), ...match]);
  expect(sent(rule)).toEqual(bytesOf(OUTSIDE));
});
