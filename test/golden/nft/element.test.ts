// Are elements described to the kernel, and read from it, byte for byte?
import { expect, test } from 'bun:test';
import { parseIp } from '../../../src/net/ip.ts';
import {
  addElements,
  deleteElements,
  elementMessage,
  findElement,
  listElements,
} from '../../../src/netlink/nft/element.ts';
import { goto } from '../../../src/netlink/nft/expr.ts';
import { answering, bodyOf, bytesOf } from '../rtnl/captured.ts';
import { sent } from './sent.ts';

// `nft` sends the same and the number of the set, which only matters for sets without a name.

const table = { family: 'inet', name: 't' } as const;
const data = ['ipv4_addr', 'inet_service'] as const;
const ports = { table, name: 'ports', key: ['inet_proto', 'inet_service'], data } as const;
const verdicts = { table, name: 'verdicts', key: ['ipv4_addr'], data: 'verdict' } as const;
const names = { table, name: 'names', key: ['ifname'] } as const;
const pod = parseIp('10.9.0.2');

// nft add element inet t ports '{ tcp . 8080 comment "net/ctr/eth0" : 10.9.0.2 . 80 }'
const PORT = `
  64 00 00 00  nlmsg_len 100
  0c 0a  nlmsg_type NFT_MSG_NEWSETELEM
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_ELEM_LIST_TABLE
    74 00  "t"
    00 00  padding
  0a 00 02 00  NFTA_SET_ELEM_LIST_SET
    70 6f 72 74 73 00  "ports"
    00 00  padding
  3c 00 03 80  NFTA_SET_ELEM_LIST_ELEMENTS {
    38 00 01 80  NFTA_LIST_ELEM {
      10 00 01 80  NFTA_SET_ELEM_KEY {
        0c 00 01 00  NFTA_DATA_VALUE
          06 00 00 00 1f 90 00 00
      }
      10 00 02 80  NFTA_SET_ELEM_DATA {
        0c 00 01 00  NFTA_DATA_VALUE
          0a 09 00 02 00 50 00 00
      }
      13 00 06 00  NFTA_SET_ELEM_USERDATA
        00 0d 6e 65 74 2f 63 74 72 2f 65 74 68 30 00
        00  padding
    }
  }
`;

// nft add element inet t verdicts '{ 10.9.0.2 : goto sub }'
const VERDICT = `
  58 00 00 00  nlmsg_len 88
  0c 0a  nlmsg_type NFT_MSG_NEWSETELEM
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_ELEM_LIST_TABLE
    74 00  "t"
    00 00  padding
  0d 00 02 00  NFTA_SET_ELEM_LIST_SET
    76 65 72 64 69 63 74 73 00  "verdicts"
    00 00 00  padding
  2c 00 03 80  NFTA_SET_ELEM_LIST_ELEMENTS {
    28 00 01 80  NFTA_LIST_ELEM {
      0c 00 01 80  NFTA_SET_ELEM_KEY {
        08 00 01 00  NFTA_DATA_VALUE
          0a 09 00 02
      }
      18 00 02 80  NFTA_SET_ELEM_DATA {
        14 00 02 80  NFTA_DATA_VERDICT {
          08 00 01 00  NFTA_VERDICT_CODE
            ff ff ff fc  -4
          08 00 02 00  NFTA_VERDICT_CHAIN
            73 75 62 00  "sub"
        }
      }
    }
  }
`;

// nft add element inet t names '{ "eth0" }'
const NAME = `
  48 00 00 00  nlmsg_len 72
  0c 0a  nlmsg_type NFT_MSG_NEWSETELEM
  05 04  nlmsg_flags REQUEST|ACK|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 00  res_id
  06 00 01 00  NFTA_SET_ELEM_LIST_TABLE
    74 00  "t"
    00 00  padding
  0a 00 02 00  NFTA_SET_ELEM_LIST_SET
    6e 61 6d 65 73 00  "names"
    00 00  padding
  20 00 03 80  NFTA_SET_ELEM_LIST_ELEMENTS {
    1c 00 01 80  NFTA_LIST_ELEM {
      18 00 01 80  NFTA_SET_ELEM_KEY {
        14 00 01 00  NFTA_DATA_VALUE
          65 74 68 30 00 00 00 00 00 00 00 00 00 00 00 00
      }
    }
  }
`;

test('addElements() sends concatenations, data and comment', () => {
  const element = { key: [6, 8080], data: [pod, 80], comment: 'net/ctr/eth0' };
  expect(sent(...addElements(ports, [element]))).toEqual(bytesOf(PORT));
});

test('addElements() sends verdicts', () => {
  expect(sent(...addElements(verdicts, [{ key: [pod], data: goto('sub') }]))).toEqual(bytesOf(VERDICT));
});

test('addElements() sends names', () => {
  expect(sent(...addElements(names, [{ key: ['eth0'] }]))).toEqual(bytesOf(NAME));
});

test('addElements() and deleteElements() send hundreds in batches, and nothing for an empty list', () => {
  const many = Array.from({ length: 250 }, (_, i) => ({ key: [`eth${i}`] }));
  const sizes = addElements(names, many).map(
    ({ body }) => elementMessage.decode(body).attrs.elements?.length,
  );
  expect(sizes).toEqual([100, 100, 50]);
  expect(
    deleteElements(
      names,
      many.map(({ key }) => key),
    ),
  ).toHaveLength(3);
  expect(addElements(names, [])).toEqual([]);
});

test('the element message reads what it wrote', () => {
  for (const listing of [PORT, VERDICT, NAME]) {
    const { header, attrs } = elementMessage.decode(bodyOf(listing));
    expect(elementMessage.encode(header, attrs)).toEqual(bodyOf(listing));
  }
});

// Linux 6.18 about the same elements
const LISTED_PORT = `
  64 00 00 00  nlmsg_len 100
  0c 0a  nlmsg_type NFT_MSG_NEWSETELEM
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 28  res_id
  06 00 01 00  NFTA_SET_ELEM_LIST_TABLE
    74 00  "t"
    00 00  padding
  0a 00 02 00  NFTA_SET_ELEM_LIST_SET
    70 6f 72 74 73 00  "ports"
    00 00  padding
  3c 00 03 00  NFTA_SET_ELEM_LIST_ELEMENTS {
    38 00 01 00  NFTA_LIST_ELEM {
      10 00 01 00  NFTA_SET_ELEM_KEY {
        0c 00 01 00  NFTA_DATA_VALUE
          06 00 00 00 1f 90 00 00
      }
      10 00 02 00  NFTA_SET_ELEM_DATA {
        0c 00 01 00  NFTA_DATA_VALUE
          0a 09 00 02 00 50 00 00
      }
      13 00 06 00  NFTA_SET_ELEM_USERDATA
        00 0d 6e 65 74 2f 63 74 72 2f 65 74 68 30 00
        00  padding
    }
  }
`;
const LISTED_VERDICT = `
  58 00 00 00  nlmsg_len 88
  0c 0a  nlmsg_type NFT_MSG_NEWSETELEM
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 28  res_id
  06 00 01 00  NFTA_SET_ELEM_LIST_TABLE
    74 00  "t"
    00 00  padding
  0d 00 02 00  NFTA_SET_ELEM_LIST_SET
    76 65 72 64 69 63 74 73 00  "verdicts"
    00 00 00  padding
  2c 00 03 00  NFTA_SET_ELEM_LIST_ELEMENTS {
    28 00 01 00  NFTA_LIST_ELEM {
      0c 00 01 00  NFTA_SET_ELEM_KEY {
        08 00 01 00  NFTA_DATA_VALUE
          0a 09 00 02
      }
      18 00 02 00  NFTA_SET_ELEM_DATA {
        14 00 02 00  NFTA_DATA_VERDICT {
          08 00 01 00  NFTA_VERDICT_CODE
            ff ff ff fc  -4
          08 00 02 00  NFTA_VERDICT_CHAIN
            73 75 62 00  "sub"
        }
      }
    }
  }
`;

test('listElements() reads concatenations, data and comment', () => {
  const [element] = answering(
    () => [bodyOf(LISTED_PORT)],
    socket => listElements(socket, ports),
  );
  expect(element).toEqual({ key: [6, 8080], data: [pod, 80], comment: 'net/ctr/eth0' });
});

test('listElements() reads verdicts', () => {
  const [element] = answering(
    () => [bodyOf(LISTED_VERDICT)],
    socket => listElements(socket, verdicts),
  );
  expect(element).toEqual({ key: [pod], data: goto('sub') });
});

// nft get element inet t ports '{ tcp . 8080 }': the answer of Linux 6.18
const FOUND = `
  64 00 00 00  nlmsg_len 100
  0c 0a  nlmsg_type NFT_MSG_NEWSETELEM
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  01  nfgen_family inet
  00  version NFNETLINK_V0
  00 28  res_id
  06 00 01 00  NFTA_SET_ELEM_LIST_TABLE
    74 00  "t"
    00 00  padding
  0a 00 02 00  NFTA_SET_ELEM_LIST_SET
    70 6f 72 74 73 00  "ports"
    00 00  padding
  3c 00 03 00  NFTA_SET_ELEM_LIST_ELEMENTS {
    38 00 01 00  NFTA_LIST_ELEM {
      10 00 01 00  NFTA_SET_ELEM_KEY {
        0c 00 01 00  NFTA_DATA_VALUE
          06 00 00 00 1f 90 00 00
      }
      10 00 02 00  NFTA_SET_ELEM_DATA {
        0c 00 01 00  NFTA_DATA_VALUE
          0a 09 00 02 00 50 00 00
      }
      13 00 06 00  NFTA_SET_ELEM_USERDATA
        00 0d 6e 65 74 2f 63 74 72 2f 65 74 68 30 00
        00  padding
    }
  }
`;

test('findElement() reads the element under a key', () => {
  const element = answering(
    () => [bodyOf(FOUND)],
    socket => findElement(socket, ports, [6, 8080]),
  );
  expect(element).toEqual({ key: [6, 8080], data: [pod, 80], comment: 'net/ctr/eth0' });
});
