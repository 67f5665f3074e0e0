// Are flows asked for, read and forgotten byte for byte?
import { expect, test } from 'bun:test';
import { parseIp, renderIp } from '../../src/net/ip.ts';
import { NLM_F_DUMP } from '../../src/netlink/codec.ts';
import { listFlows, removeFlow } from '../../src/netlink/conntrack.ts';
import { answering, bodyOf, bytesOf, messageOf, sentBy } from './rtnl/captured.ts';

const filter = { family: 4, protocol: 17, port: 8080 } as const;

// conntrack -L -f ipv4 -p udp --orig-port-dst 8080 (which filters in user space; Linux 6.18 accepted this)
const ASK = `
  40 00 00 00  nlmsg_len 64
  01 01  nlmsg_type IPCTNL_MSG_CT_GET
  01 03  nlmsg_flags REQUEST|DUMP
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  nfgen_family ip
  00  version NFNETLINK_V0
  00 00  res_id
  18 00 01 80  CTA_TUPLE_ORIG {
    14 00 02 80  CTA_TUPLE_PROTO {
      05 00 01 00  CTA_PROTO_NUM
        11  17
        00 00 00  padding
      06 00 03 00  CTA_PROTO_DST_PORT
        1f 90  8080
        00 00  padding
    }
  }
  14 00 19 80  CTA_FILTER {
    08 00 01 00  CTA_FILTER_ORIG_FLAGS
      28 00 00 00
    08 00 02 00  CTA_FILTER_REPLY_FLAGS
      00 00 00 00
  }
`;

// Linux 6.18 about a packet to 127.0.0.1:8080, for which a rule said "dnat ip to 127.0.0.2:80"
const FLOW = `
  a4 00 00 00  nlmsg_len 164
  00 01  nlmsg_type IPCTNL_MSG_CT_NEW
  02 00  nlmsg_flags MULTI
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  nfgen_family ip
  00  version NFNETLINK_V0
  00 00  res_id
  34 00 01 80  CTA_TUPLE_ORIG {
    14 00 01 80  CTA_TUPLE_IP {
      08 00 01 00  CTA_IP_V4_SRC
        7f 00 00 01
      08 00 02 00  CTA_IP_V4_DST
        7f 00 00 01
    }
    1c 00 02 80  CTA_TUPLE_PROTO {
      05 00 01 00  CTA_PROTO_NUM
        11  17
        00 00 00  padding
      06 00 02 00  CTA_PROTO_SRC_PORT
        9c d9  40153
        00 00  padding
      06 00 03 00  CTA_PROTO_DST_PORT
        1f 90  8080
        00 00  padding
    }
  }
  34 00 02 80  CTA_TUPLE_REPLY {
    14 00 01 80  CTA_TUPLE_IP {
      08 00 01 00  CTA_IP_V4_SRC
        7f 00 00 02
      08 00 02 00  CTA_IP_V4_DST
        7f 00 00 01
    }
    1c 00 02 80  CTA_TUPLE_PROTO {
      05 00 01 00  CTA_PROTO_NUM
        11  17
        00 00 00  padding
      06 00 02 00  CTA_PROTO_SRC_PORT
        00 50  80
        00 00  padding
      06 00 03 00  CTA_PROTO_DST_PORT
        9c d9  40153
        00 00  padding
    }
  }
  08 00 03 00  CTA_STATUS
    00 00 01 a8  424
  08 00 08 00  CTA_MARK
    00 00 00 00  0
  08 00 0c 00  CTA_ID
    95 a9 9e b5  0x95a99eb5
  08 00 0b 00  CTA_USE
    00 00 00 01  1
  08 00 07 00  CTA_TIMEOUT
    00 00 00 1d  29
`;

// conntrack -D with all of the flow's original direction
const FORGET = `
  50 00 00 00  nlmsg_len 80
  02 01  nlmsg_type IPCTNL_MSG_CT_DELETE
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  02  nfgen_family ip
  00  version NFNETLINK_V0
  00 00  res_id
  34 00 01 80  CTA_TUPLE_ORIG {
    14 00 01 80  CTA_TUPLE_IP {
      08 00 01 00  CTA_IP_V4_SRC
        7f 00 00 01
      08 00 02 00  CTA_IP_V4_DST
        7f 00 00 01
    }
    1c 00 02 80  CTA_TUPLE_PROTO {
      05 00 01 00  CTA_PROTO_NUM
        11  17
        00 00 00  padding
      06 00 02 00  CTA_PROTO_SRC_PORT
        9c d9  40153
        00 00  padding
      06 00 03 00  CTA_PROTO_DST_PORT
        1f 90  8080
        00 00  padding
    }
  }
  08 00 0c 00  CTA_ID
    95 a9 9e b5  0x95a99eb5
`;

test('listFlows() has the kernel compare protocol and port', () => {
  let asked: { type: number; body: Uint8Array } | undefined;
  answering(
    request => {
      asked = request;
      return [];
    },
    socket => listFlows(socket, filter),
  );
  const { type, flags, body } = messageOf(ASK);
  expect({ type: asked?.type, body: asked?.body }).toEqual({ type, body });
  expect(flags & NLM_F_DUMP).toBe(NLM_F_DUMP);
});

test('listFlows() reads the original destination and the replying address', () => {
  const [flow] = read(filter.port);
  expect(flow).toMatchObject({ family: 4, destinationPort: 8080, responderPort: 80 });
  expect([flow?.destination, flow?.responder].map(ip => ip && renderIp(ip))).toEqual([
    '127.0.0.1',
    '127.0.0.2',
  ]);
});

test('listFlows() filters again, for kernels that ignore the filter', () => {
  expect(read(8081)).toEqual([]);
});

test('listFlows() can compare the replying address instead of the port', () => {
  const ask = (text: string) =>
    answering(
      () => [bodyOf(FLOW)],
      socket => listFlows(socket, { family: 4, protocol: 17, responder: parseIp(text) }),
    );
  expect([ask('127.0.0.2').length, ask('127.0.0.1').length]).toEqual([1, 0]);
});

test('removeFlow() names the flow by its addresses and id', () => {
  const [flow] = read(filter.port);
  if (flow === undefined) throw new Error('Cannot remove flow: none was read');
  expect(sentBy(socket => removeFlow(socket, flow))).toEqual(bytesOf(FORGET));
});

function read(port: number): ReturnType<typeof listFlows> {
  return answering(
    () => [bodyOf(FLOW)],
    socket => listFlows(socket, { ...filter, port }),
  );
}
