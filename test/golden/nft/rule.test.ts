// Are rules described to the kernel, and read from it, byte for byte?
import { describe, expect, test } from 'bun:test';
import { hostU32, isEqual, loadCt, maskRegister, REG } from '../../../src/netlink/nft/expr.ts';
import { parseRule } from '../../../src/netlink/nft/skeleton.ts';
import { addRule, listRules, ruleMessage, summarizeChains } from '../../../src/netlink/nft/table.ts';
import { answering, bodyOf, bytesOf } from '../rtnl/captured.ts';
import { sent } from './sent.ts';

// `nft` sends the same but for the number of the set in lookups.

const table = { family: 'inet', name: 't' } as const;
/** linux/netfilter/nf_conntrack_common.h, enum ip_conntrack_status */
const IPS_DST_NAT = 0x20;

// nft add rule inet t pre fib daddr type local jump sub comment '"hi"'
const JUMP = `
  c0 00 00 00  nlmsg_len 192
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
  90 00 04 80  NFTA_RULE_EXPRESSIONS {
    28 00 01 80  NFTA_LIST_ELEM {
      08 00 01 00  NFTA_EXPR_NAME
        66 69 62 00  "fib"
      1c 00 02 80  NFTA_EXPR_DATA {
        08 00 03 00  NFTA_FIB_FLAGS
          00 00 00 02  2
        08 00 02 00  NFTA_FIB_RESULT
          00 00 00 03  3
        08 00 01 00  NFTA_FIB_DREG
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
          00 00 00 00  0
        0c 00 03 80  NFTA_CMP_DATA {
          08 00 01 00  NFTA_DATA_VALUE
            02 00 00 00
        }
      }
    }
    38 00 01 80  NFTA_LIST_ELEM {
      0e 00 01 00  NFTA_EXPR_NAME
        69 6d 6d 65 64 69 61 74 65 00  "immediate"
        00 00  padding
      24 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_IMMEDIATE_DREG
          00 00 00 00  0
        18 00 02 80  NFTA_IMMEDIATE_DATA {
          14 00 02 80  NFTA_DATA_VERDICT {
            08 00 01 00  NFTA_VERDICT_CODE
              ff ff ff fd  -3
            08 00 02 00  NFTA_VERDICT_CHAIN
              73 75 62 00  "sub"
          }
        }
      }
    }
  }
  09 00 07 00  NFTA_RULE_USERDATA
    00 03 68 69 00
    00 00 00  padding
`;

// nft add rule inet t sub meta nfproto ipv4 dnat ip to meta l4proto . th dport map @ports
const DNAT = `
  38 01 00 00  nlmsg_len 312
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
    73 75 62 00  "sub"
  14 01 04 80  NFTA_RULE_EXPRESSIONS {
    24 00 01 80  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 0f  15
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
          00 00 00 00  0
        0c 00 03 80  NFTA_CMP_DATA {
          05 00 01 00  NFTA_DATA_VALUE
            02
            00 00 00  padding
        }
      }
    }
    24 00 01 80  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 10  16
        08 00 01 00  NFTA_META_DREG
          00 00 00 01  1
      }
    }
    34 00 01 80  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_EXPR_NAME
        70 61 79 6c 6f 61 64 00  "payload"
      24 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_PAYLOAD_DREG
          00 00 00 09  9
        08 00 02 00  NFTA_PAYLOAD_BASE
          00 00 00 02  2
        08 00 03 00  NFTA_PAYLOAD_OFFSET
          00 00 00 02  2
        08 00 04 00  NFTA_PAYLOAD_LEN
          00 00 00 02  2
      }
    }
    38 00 01 80  NFTA_LIST_ELEM {
      0b 00 01 00  NFTA_EXPR_NAME
        6c 6f 6f 6b 75 70 00  "lookup"
        00  padding
      28 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_LOOKUP_SREG
          00 00 00 01  1
        08 00 03 00  NFTA_LOOKUP_DREG
          00 00 00 01  1
        0a 00 01 00  NFTA_LOOKUP_SET
          70 6f 72 74 73 00  "ports"
          00 00  padding
        08 00 04 00  NFTA_LOOKUP_SET_ID
          00 00 00 01  1
      }
    }
    30 00 01 80  NFTA_LIST_ELEM {
      08 00 01 00  NFTA_EXPR_NAME
        6e 61 74 00  "nat"
      24 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_NAT_TYPE
          00 00 00 01  1
        08 00 02 00  NFTA_NAT_FAMILY
          00 00 00 02  2
        08 00 03 00  NFTA_NAT_REG_ADDR_MIN
          00 00 00 01  1
        08 00 05 00  NFTA_NAT_REG_PROTO_MIN
          00 00 00 09  9
      }
    }
  }
`;

// nft add rule inet t post 'ip saddr & 255.255.255.0 . ip daddr @pairs masquerade'
const HAIRPIN = `
  74 01 00 00  nlmsg_len 372
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
  09 00 02 00  NFTA_RULE_CHAIN
    70 6f 73 74 00  "post"
    00 00 00  padding
  4c 01 04 80  NFTA_RULE_EXPRESSIONS {
    24 00 01 80  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 0f  15
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
          00 00 00 00  0
        0c 00 03 80  NFTA_CMP_DATA {
          05 00 01 00  NFTA_DATA_VALUE
            02
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
          00 00 00 01  1
        08 00 03 00  NFTA_PAYLOAD_OFFSET
          00 00 00 0c  12
        08 00 04 00  NFTA_PAYLOAD_LEN
          00 00 00 04  4
      }
    }
    4c 00 01 80  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_EXPR_NAME
        62 69 74 77 69 73 65 00  "bitwise"
      3c 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_BITWISE_SREG
          00 00 00 01  1
        08 00 02 00  NFTA_BITWISE_DREG
          00 00 00 01  1
        08 00 06 00  NFTA_BITWISE_OP
          00 00 00 00  0
        08 00 03 00  NFTA_BITWISE_LEN
          00 00 00 04  4
        0c 00 04 80  NFTA_BITWISE_MASK {
          08 00 01 00  NFTA_DATA_VALUE
            ff ff ff 00
        }
        0c 00 05 80  NFTA_BITWISE_XOR {
          08 00 01 00  NFTA_DATA_VALUE
            00 00 00 00
        }
      }
    }
    34 00 01 80  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_EXPR_NAME
        70 61 79 6c 6f 61 64 00  "payload"
      24 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_PAYLOAD_DREG
          00 00 00 09  9
        08 00 02 00  NFTA_PAYLOAD_BASE
          00 00 00 01  1
        08 00 03 00  NFTA_PAYLOAD_OFFSET
          00 00 00 10  16
        08 00 04 00  NFTA_PAYLOAD_LEN
          00 00 00 04  4
      }
    }
    30 00 01 80  NFTA_LIST_ELEM {
      0b 00 01 00  NFTA_EXPR_NAME
        6c 6f 6f 6b 75 70 00  "lookup"
        00  padding
      20 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_LOOKUP_SREG
          00 00 00 01  1
        0a 00 01 00  NFTA_LOOKUP_SET
          70 61 69 72 73 00  "pairs"
          00 00  padding
        08 00 04 00  NFTA_LOOKUP_SET_ID
          00 00 00 01  1
      }
    }
    14 00 01 80  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 61 73 71 00  "masq"
        00 00 00  padding
      04 00 02 80  NFTA_EXPR_DATA {
      }
    }
  }
`;

// nft add rule inet t post 'ct status & dnat == dnat ip daddr vmap @verdicts'
const VERDICT_MAP = `
  84 01 00 00  nlmsg_len 388
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
  09 00 02 00  NFTA_RULE_CHAIN
    70 6f 73 74 00  "post"
    00 00 00  padding
  5c 01 04 80  NFTA_RULE_EXPRESSIONS {
    20 00 01 80  NFTA_LIST_ELEM {
      07 00 01 00  NFTA_EXPR_NAME
        63 74 00  "ct"
        00  padding
      14 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_CT_KEY
          00 00 00 02  2
        08 00 01 00  NFTA_CT_DREG
          00 00 00 01  1
      }
    }
    4c 00 01 80  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_EXPR_NAME
        62 69 74 77 69 73 65 00  "bitwise"
      3c 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_BITWISE_SREG
          00 00 00 01  1
        08 00 02 00  NFTA_BITWISE_DREG
          00 00 00 01  1
        08 00 06 00  NFTA_BITWISE_OP
          00 00 00 00  0
        08 00 03 00  NFTA_BITWISE_LEN
          00 00 00 04  4
        0c 00 04 80  NFTA_BITWISE_MASK {
          08 00 01 00  NFTA_DATA_VALUE
            20 00 00 00
        }
        0c 00 05 80  NFTA_BITWISE_XOR {
          08 00 01 00  NFTA_DATA_VALUE
            00 00 00 00
        }
      }
    }
    2c 00 01 80  NFTA_LIST_ELEM {
      08 00 01 00  NFTA_EXPR_NAME
        63 6d 70 00  "cmp"
      20 00 02 80  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_CMP_SREG
          00 00 00 01  1
        08 00 02 00  NFTA_CMP_OP
          00 00 00 00  0
        0c 00 03 80  NFTA_CMP_DATA {
          08 00 01 00  NFTA_DATA_VALUE
            20 00 00 00
        }
      }
    }
    24 00 01 80  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 0f  15
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
          00 00 00 00  0
        0c 00 03 80  NFTA_CMP_DATA {
          05 00 01 00  NFTA_DATA_VALUE
            02
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
          00 00 00 01  1
        08 00 03 00  NFTA_PAYLOAD_OFFSET
          00 00 00 10  16
        08 00 04 00  NFTA_PAYLOAD_LEN
          00 00 00 04  4
      }
    }
    3c 00 01 80  NFTA_LIST_ELEM {
      0b 00 01 00  NFTA_EXPR_NAME
        6c 6f 6f 6b 75 70 00  "lookup"
        00  padding
      2c 00 02 80  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_LOOKUP_SREG
          00 00 00 01  1
        08 00 03 00  NFTA_LOOKUP_DREG
          00 00 00 00  0
        0d 00 01 00  NFTA_LOOKUP_SET
          76 65 72 64 69 63 74 73 00  "verdicts"
          00 00 00  padding
        08 00 04 00  NFTA_LOOKUP_SET_ID
          00 00 00 01  1
      }
    }
  }
`;

describe('addRule() sends', () => {
  test('a match on the kind of destination, a jump and a comment', () => {
    const rule = parseRule('inet', 'fib daddr type local jump sub');
    expect(sent(addRule(table, 'pre', rule, 'hi'))).toEqual(bytesOf(JUMP));
  });

  test('a translation by a map', () => {
    const rule = parseRule('inet', 'meta nfproto ipv4 dnat ip to meta l4proto . th dport map @ports');
    expect(sent(addRule(table, 'sub', rule))).toEqual(bytesOf(DNAT));
  });

  test('a masked address in a set, and masquerading', () => {
    const rule = parseRule('inet', 'ip saddr & 255.255.255.0 . ip daddr @pairs masquerade');
    expect(sent(addRule(table, 'post', rule))).toEqual(bytesOf(HAIRPIN));
  });

  test('a match on the connection, and a verdict map', () => {
    const dnat = hostU32(IPS_DST_NAT);
    const rule = [
      loadCt(REG.first, 'status'),
      maskRegister(REG.first, dnat),
      isEqual(REG.first, dnat),
      ...parseRule('inet', 'ip daddr vmap @verdicts'),
    ];
    expect(sent(addRule(table, 'post', rule))).toEqual(bytesOf(VERDICT_MAP));
  });
});

test('the rule message reads what it wrote', () => {
  for (const listing of [JUMP, DNAT, HAIRPIN, VERDICT_MAP]) {
    const { header, attrs } = ruleMessage.decode(bodyOf(listing));
    expect(ruleMessage.encode(header, attrs)).toEqual(bodyOf(listing));
  }
});

// Linux 6.18 about the translation
const LISTED = `
  5c 01 00 00  nlmsg_len 348
  06 0a  nlmsg_type NFT_MSG_NEWRULE
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 28  res_id
  06 00 01 00  NFTA_RULE_TABLE
    74 00  "t"
    00 00  padding
  08 00 02 00  NFTA_RULE_CHAIN
    73 75 62 00  "sub"
  0c 00 03 00  NFTA_RULE_HANDLE
    00 00 00 00 00 00 00 09  9
  2c 01 04 00  NFTA_RULE_EXPRESSIONS {
    24 00 01 00  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 00  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 0f  15
        08 00 01 00  NFTA_META_DREG
          00 00 00 01  1
      }
    }
    2c 00 01 00  NFTA_LIST_ELEM {
      08 00 01 00  NFTA_EXPR_NAME
        63 6d 70 00  "cmp"
      20 00 02 00  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_CMP_SREG
          00 00 00 01  1
        08 00 02 00  NFTA_CMP_OP
          00 00 00 00  0
        0c 00 03 00  NFTA_CMP_DATA {
          05 00 01 00  NFTA_DATA_VALUE
            02
            00 00 00  padding
        }
      }
    }
    24 00 01 00  NFTA_LIST_ELEM {
      09 00 01 00  NFTA_EXPR_NAME
        6d 65 74 61 00  "meta"
        00 00 00  padding
      14 00 02 00  NFTA_EXPR_DATA {
        08 00 02 00  NFTA_META_KEY
          00 00 00 10  16
        08 00 01 00  NFTA_META_DREG
          00 00 00 01  1
      }
    }
    34 00 01 00  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_EXPR_NAME
        70 61 79 6c 6f 61 64 00  "payload"
      24 00 02 00  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_PAYLOAD_DREG
          00 00 00 09  9
        08 00 02 00  NFTA_PAYLOAD_BASE
          00 00 00 02  2
        08 00 03 00  NFTA_PAYLOAD_OFFSET
          00 00 00 02  2
        08 00 04 00  NFTA_PAYLOAD_LEN
          00 00 00 02  2
      }
    }
    38 00 01 00  NFTA_LIST_ELEM {
      0b 00 01 00  NFTA_EXPR_NAME
        6c 6f 6f 6b 75 70 00  "lookup"
        00  padding
      28 00 02 00  NFTA_EXPR_DATA {
        0a 00 01 00  NFTA_LOOKUP_SET
          70 6f 72 74 73 00  "ports"
          00 00  padding
        08 00 02 00  NFTA_LOOKUP_SREG
          00 00 00 01  1
        08 00 03 00  NFTA_LOOKUP_DREG
          00 00 00 01  1
        08 00 05 00  NFTA_LOOKUP_FLAGS
          00 00 00 00  0
      }
    }
    48 00 01 00  NFTA_LIST_ELEM {
      08 00 01 00  NFTA_EXPR_NAME
        6e 61 74 00  "nat"
      3c 00 02 00  NFTA_EXPR_DATA {
        08 00 01 00  NFTA_NAT_TYPE
          00 00 00 01  1
        08 00 02 00  NFTA_NAT_FAMILY
          00 00 00 02  2
        08 00 03 00  NFTA_NAT_REG_ADDR_MIN
          00 00 00 01  1
        08 00 04 00  NFTA_NAT_REG_ADDR_MAX
          00 00 00 01  1
        08 00 05 00  NFTA_NAT_REG_PROTO_MIN
          00 00 00 09  9
        08 00 06 00  NFTA_NAT_REG_PROTO_MAX
          00 00 00 09  9
        08 00 07 00  NFTA_NAT_FLAGS
          00 00 00 03  3
      }
    }
  }
`;

test('listRules() reads chain, handle and expressions', () => {
  const [rule] = answering(
    () => [bodyOf(LISTED)],
    socket => listRules(socket, table),
  );
  expect(rule).toMatchObject({ chain: 'sub', handle: 9n });
  expect(rule?.expressions.map(({ name }) => name)).toEqual([
    'meta',
    'cmp',
    'meta',
    'payload',
    'lookup',
    'nat',
  ]);
});

test('summarizeChains() counts by chain', () => {
  const chains = answering(
    () => [LISTED, LISTED, JUMP].map(bodyOf),
    socket => summarizeChains(socket, table),
  );
  expect([...chains].map(([name, { count }]) => [name, count])).toEqual([
    ['sub', 2],
    ['pre', 1],
  ]);
});
