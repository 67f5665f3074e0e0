// Are qdiscs described to the kernel, and read from it, byte for byte?
import { describe, expect, test } from 'bun:test';
import {
  bfifoRequest,
  findQdisc,
  htbRequest,
  ingressRequest,
  listQdiscs,
  qdiscMessage,
  removeQdiscRequest,
  TC_H_INGRESS,
  TC_H_ROOT,
  tbfRequest,
  tcFifoQopt,
  tcHandle,
  tcHtbGlob,
  tcmsg,
  tcRatespec,
  tcTbfQopt,
} from '../../../src/netlink/rtnl/qdisc.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

test('the structs are as large as in linux/rtnetlink.h and linux/pkt_sched.h', () => {
  expect([tcmsg.size, tcRatespec.size, tcTbfQopt.size]).toEqual([20, 12, 36]);
  expect([tcHtbGlob.size, tcFifoQopt.size]).toEqual([20, 4]);
});

describe('tbfRequest()', () => {
  // tc qdisc replace dev veth0 root handle 1: tbf rate 1mbit burst 250000 limit 253125
  // `tc` adds TCA_TBF_RTAB, TCA_TBF_BURST and a link layer, and leaves out NLA_F_NESTED.
  const TBF = `
  58 00 00 00  nlmsg_len 88
  24 00  nlmsg_type RTM_NEWQDISC
  05 05  nlmsg_flags REQUEST|ACK|REPLACE|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 01 00  tcm_handle 0x10000
  ff ff ff ff  tcm_parent 0xffffffff
  00 00 00 00  tcm_info 0
  08 00 01 00  TCA_KIND
    74 62 66 00  "tbf"
  2c 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    28 00 01 00  TCA_TBF_PARMS
      00  rate.cell_log 0
      00  rate.linklayer 0
      00 00  rate.overhead 0
      00 00  rate.cell_align 0
      00 00  rate.mpu 0
      48 e8 01 00  rate.rate 125000
      00 00 00 00 00 00 00 00 00 00 00 00  peakrate
      c5 dc 03 00  limit 253125
      50 d6 dc 01  buffer 31250000
      00 00 00 00  mtu 0
  }
`;

  test('sends rate, limit and buffer', () => {
    const tbf = { rateBytes: 125_000, bufferTicks: 31_250_000, limitBytes: 253_125 };
    expect(sentBy(socket => socket.request(tbfRequest(3, tbf)))).toEqual(bytesOf(TBF));
    expect(qdiscMessage.decode(bodyOf(TBF))).toEqual({
      header: { ...tcmsg.zero, index: 3, handle: tcHandle(1, 0), parent: TC_H_ROOT },
      attrs: {
        kind: 'tbf',
        options: {
          parms: {
            ...tcTbfQopt.zero,
            rate: { ...tcRatespec.zero, rate: 125_000 },
            limit: 253_125,
            buffer: 31_250_000,
          },
        },
      },
    });
  });

  // tc qdisc replace dev veth0 root handle 1: tbf rate 100gbit burst 268435455 limit 312768435
  const TBF_64 = `
  64 00 00 00  nlmsg_len 100
  24 00  nlmsg_type RTM_NEWQDISC
  05 05  nlmsg_flags REQUEST|ACK|REPLACE|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 01 00  tcm_handle 0x10000
  ff ff ff ff  tcm_parent 0xffffffff
  00 00 00 00  tcm_info 0
  08 00 01 00  TCA_KIND
    74 62 66 00  "tbf"
  38 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    28 00 01 00  TCA_TBF_PARMS
      00  rate.cell_log 0
      00  rate.linklayer 0
      00 00  rate.overhead 0
      00 00  rate.cell_align 0
      00 00  rate.mpu 0
      00 dd 0e e9  rate.rate 3910065408
      00 00 00 00 00 00 00 00 00 00 00 00  peakrate
      b3 77 a4 12  limit 312768435
      9b 1e 05 00  buffer 335515
      00 00 00 00  mtu 0
    0c 00 04 00  TCA_TBF_RATE64
      00 dd 0e e9 02 00 00 00
  }
`;

  test('sends a rate beyond 32 bits as TCA_TBF_RATE64', () => {
    const tbf = { rateBytes: 12_500_000_000, bufferTicks: 335_515, limitBytes: 312_768_435 };
    expect(sentBy(socket => socket.request(tbfRequest(3, tbf)))).toEqual(bytesOf(TBF_64));
    const found = answering(
      () => [bodyOf(TBF_64)],
      socket => findQdisc(socket, 3, 'root'),
    );
    expect(found?.tbf).toEqual(tbf);
  });
});

// tc qdisc add dev veth0 root handle 1: htb default 30
// `tc` sends the same without NLA_F_NESTED.
const HTB = `
  48 00 00 00  nlmsg_len 72
  24 00  nlmsg_type RTM_NEWQDISC
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 01 00  tcm_handle 0x10000
  ff ff ff ff  tcm_parent 0xffffffff
  00 00 00 00  tcm_info 0
  08 00 01 00  TCA_KIND
    68 74 62 00  "htb"
  1c 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    18 00 02 00  TCA_HTB_INIT
      03 00 00 00  version 3
      0a 00 00 00  rate2quantum 10
      30 00 00 00  defcls 0x30
      00 00 00 00  debug 0
      00 00 00 00  direct_pkts 0
  }
`;

test('htbRequest() sends the default class', () => {
  expect(sentBy(socket => socket.request(htbRequest(3, 0x30)))).toEqual(bytesOf(HTB));
  const found = answering(
    () => [bodyOf(HTB)],
    socket => findQdisc(socket, 3, 'root'),
  );
  expect(found).toEqual({
    index: 3,
    kind: 'htb',
    handle: tcHandle(1, 0),
    parent: TC_H_ROOT,
    defaultClass: 0x30,
  });
});

// tc qdisc add dev veth0 parent 1:30 handle 30: bfifo limit 253125
// `tc` sends exactly this, sequence number apart.
const BFIFO = `
  38 00 00 00  nlmsg_len 56
  24 00  nlmsg_type RTM_NEWQDISC
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 30 00  tcm_handle 0x300000
  30 00 01 00  tcm_parent 0x10030
  00 00 00 00  tcm_info 0
  0a 00 01 00  TCA_KIND
    62 66 69 66 6f 00  "bfifo"
  00 00  padding
  08 00 02 00  TCA_OPTIONS
    c5 dc 03 00  limit 253125
`;

test('bfifoRequest() sends the bare struct', () => {
  const queue = { parent: tcHandle(1, 0x30), handle: tcHandle(0x30, 0), limitBytes: 253_125 };
  expect(sentBy(socket => socket.request(bfifoRequest(3, queue)))).toEqual(bytesOf(BFIFO));
  const found = answering(
    () => [bodyOf(BFIFO)],
    socket => findQdisc(socket, 3, tcHandle(1, 0x30)),
  );
  expect(found).toEqual({ index: 3, kind: 'bfifo', ...queue });
});

// tc qdisc add dev veth0 ingress
// `tc` leaves the empty TCA_OPTIONS out.
const INGRESS = `
  34 00 00 00  nlmsg_len 52
  24 00  nlmsg_type RTM_NEWQDISC
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 ff ff  tcm_handle 0xffff0000
  f1 ff ff ff  tcm_parent 0xfffffff1
  00 00 00 00  tcm_info 0
  0c 00 01 00  TCA_KIND
    69 6e 67 72 65 73 73 00  "ingress"
  04 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
  }
`;

test('ingressRequest() sends no options', () => {
  expect(sentBy(socket => socket.request(ingressRequest(3)))).toEqual(bytesOf(INGRESS));
});

// tc qdisc del dev veth0 ingress
// `tc` adds the kind, which the kernel does not need.
const REMOVE = `
  24 00 00 00  nlmsg_len 36
  25 00  nlmsg_type RTM_DELQDISC
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 ff ff  tcm_handle 0xffff0000
  f1 ff ff ff  tcm_parent 0xfffffff1
  00 00 00 00  tcm_info 0
`;

test('removeQdiscRequest() names handle and parent', () => {
  const qdisc = { index: 3, handle: tcHandle(0xffff, 0), parent: TC_H_INGRESS };
  expect(sentBy(socket => socket.request(removeQdiscRequest(qdisc)))).toEqual(bytesOf(REMOVE));
});

// tc qdisc show dev veth0 root (`tc` lists all and filters)
const FIND = `
  24 00 00 00  nlmsg_len 36
  26 00  nlmsg_type RTM_GETQDISC
  0d 00  nlmsg_flags REQUEST|ACK|ECHO
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 00  tcm_handle 0
  ff ff ff ff  tcm_parent 0xffffffff
  00 00 00 00  tcm_info 0
`;

test('findQdisc() requests one qdisc, with an echo', () => {
  expect(sentBy(socket => findQdisc(socket, 3, 'root'))).toEqual(bytesOf(FIND));
});

describe('what Linux 6.18 answers to tc qdisc show', () => {
  const NOQUEUE = `
  94 00 00 00  nlmsg_len 148
  24 00  nlmsg_type RTM_NEWQDISC
  02 00  nlmsg_flags MULTI
  d3 3b 01 6b  nlmsg_seq
  21 2b 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  02 00 00 00  tcm_ifindex 2
  00 00 00 00  tcm_handle 0
  ff ff ff ff  tcm_parent 0xffffffff
  02 00 00 00  tcm_info 2
  0c 00 01 00  TCA_KIND
    6e 6f 71 75 65 75 65 00  "noqueue"
  05 00 0c 00  TCA_HW_OFFLOAD
    00  0
  00 00 00  padding
  30 00 07 00  TCA_STATS2, not in our table
    14 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 18 00 03 00 00 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00 00 00 00 00  bytes 32 to 43
  2c 00 03 00  TCA_STATS
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00  bytes 32 to 39
`;
  const TBF = `
  bc 00 00 00  nlmsg_len 188
  24 00  nlmsg_type RTM_NEWQDISC
  02 00  nlmsg_flags MULTI
  d3 3b 01 6b  nlmsg_seq
  21 2b 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 01 00  tcm_handle 0x10000
  ff ff ff ff  tcm_parent 0xffffffff
  03 00 00 00  tcm_info 3
  08 00 01 00  TCA_KIND
    74 62 66 00  "tbf"
  2c 00 02 00  TCA_OPTIONS {
    28 00 01 00  TCA_TBF_PARMS
      00  rate.cell_log 0
      01  rate.linklayer 1
      00 00  rate.overhead 0
      00 00  rate.cell_align 0
      00 00  rate.mpu 0
      48 e8 01 00  rate.rate 125000
      00 00 00 00 00 00 00 00 00 00 00 00  peakrate
      c5 dc 03 00  limit 253125
      50 d6 dc 01  buffer 31250000
      00 00 00 00  mtu 0
  }
  05 00 0c 00  TCA_HW_OFFLOAD
    00  0
  00 00 00  padding
  30 00 07 00  TCA_STATS2, not in our table
    14 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 18 00 03 00 00 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00 00 00 00 00  bytes 32 to 43
  2c 00 03 00  TCA_STATS
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00  bytes 32 to 39
`;
  const INGRESS_SHOWN = `
  98 00 00 00  nlmsg_len 152
  24 00  nlmsg_type RTM_NEWQDISC
  02 00  nlmsg_flags MULTI
  d3 3b 01 6b  nlmsg_seq
  21 2b 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 ff ff  tcm_handle 0xffff0000
  f1 ff ff ff  tcm_parent 0xfffffff1
  01 00 00 00  tcm_info 1
  0c 00 01 00  TCA_KIND
    69 6e 67 72 65 73 73 00  "ingress"
  04 00 02 00  TCA_OPTIONS {
  }
  05 00 0c 00  TCA_HW_OFFLOAD
    00  0
  00 00 00  padding
  30 00 07 00  TCA_STATS2, not in our table
    14 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 18 00 03 00 00 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00 00 00 00 00  bytes 32 to 43
  2c 00 03 00  TCA_STATS
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 0 to 31
    00 00 00 00 00 00 00 00  bytes 32 to 39
`;
  const bodies = [NOQUEUE, TBF, INGRESS_SHOWN].map(bodyOf);
  const tbf = { rateBytes: 125_000, bufferTicks: 31_250_000, limitBytes: 253_125 };

  test('listQdiscs() reads all of them', () => {
    expect(answering(() => bodies, listQdiscs)).toEqual([
      { index: 2, kind: 'noqueue', handle: 0, parent: TC_H_ROOT, tbf: undefined },
      { index: 3, kind: 'tbf', handle: tcHandle(1, 0), parent: TC_H_ROOT, tbf },
      { index: 3, kind: 'ingress', handle: tcHandle(0xffff, 0), parent: TC_H_INGRESS, tbf: undefined },
    ]);
  });

  test('findQdisc() ignores the default qdisc of the kernel', () => {
    const found = answering(
      () => bodies.slice(0, 1),
      socket => findQdisc(socket, 2, 'root'),
    );
    expect(found).toBeUndefined();
  });
});
