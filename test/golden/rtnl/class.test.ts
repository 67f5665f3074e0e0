// Are classes described to the kernel, and read from it, byte for byte?
import { describe, expect, test } from 'bun:test';
import {
  classMessage,
  htbClassRequest,
  listClasses,
  tcHandle,
  tcHtbOpt,
} from '../../../src/netlink/rtnl/qdisc.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

test('the struct is as large as in linux/pkt_sched.h', () => {
  expect(tcHtbOpt.size).toBe(44);
});

describe('htbClassRequest()', () => {
  // tc class add dev veth0 parent 1: classid 1:30 htb rate 1mbit ceil 1mbit burst 250000 cburst 250000 quantum 12500
  // `tc` adds TCA_HTB_CTAB and TCA_HTB_RTAB with cell_log and cell_align for them, and leaves out NLA_F_NESTED.
  const CLASS = `
  60 00 00 00  nlmsg_len 96
  28 00  nlmsg_type RTM_NEWTCLASS
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  30 00 01 00  tcm_handle 0x10030
  00 00 01 00  tcm_parent 0x10000
  00 00 00 00  tcm_info 0
  08 00 01 00  TCA_KIND
    68 74 62 00  "htb"
  34 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    30 00 01 00  TCA_HTB_PARMS
      00  rate.cell_log 0
      01  rate.linklayer 1
      00 00  rate.overhead 0
      00 00  rate.cell_align 0
      00 00  rate.mpu 0
      48 e8 01 00  rate.rate 125000
      00  ceil.cell_log 0
      01  ceil.linklayer 1
      00 00  ceil.overhead 0
      00 00  ceil.cell_align 0
      00 00  ceil.mpu 0
      48 e8 01 00  ceil.rate 125000
      50 d6 dc 01  buffer 31250000
      50 d6 dc 01  cbuffer 31250000
      d4 30 00 00  quantum 12500
      00 00 00 00  level 0
      00 00 00 00  prio 0
  }
`;
  const slow = { rateBytes: 125_000, ceilBytes: 125_000, bufferTicks: 31_250_000, quantumBytes: 12_500 };

  test('sends rate, ceiling, buckets and quantum', () => {
    expect(sentBy(socket => socket.request(htbClassRequest(3, 0x30, slow)))).toEqual(bytesOf(CLASS));
    expect(answering(() => [bodyOf(CLASS)], listed)).toEqual([
      { kind: 'htb', handle: tcHandle(1, 0x30), parent: tcHandle(1, 0), htb: slow },
    ]);
  });

  // tc class add dev veth0 parent 1: classid 1:1 htb rate 800gbit ceil 800gbit burst 1 cburst 1 quantum 200000
  // `tc` adds the tables here, too, and puts the rates beyond 32 bits first.
  const CLASS_64 = `
  78 00 00 00  nlmsg_len 120
  28 00  nlmsg_type RTM_NEWTCLASS
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  01 00 01 00  tcm_handle 0x10001
  00 00 01 00  tcm_parent 0x10000
  00 00 00 00  tcm_info 0
  08 00 01 00  TCA_KIND
    68 74 62 00  "htb"
  4c 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    30 00 01 00  TCA_HTB_PARMS
      00  rate.cell_log 0
      01  rate.linklayer 1
      00 00  rate.overhead 0
      00 00  rate.cell_align 0
      00 00  rate.mpu 0
      ff ff ff ff  rate.rate, as much as fits
      00  ceil.cell_log 0
      01  ceil.linklayer 1
      00 00  ceil.overhead 0
      00 00  ceil.cell_align 0
      00 00  ceil.mpu 0
      ff ff ff ff  ceil.rate, as much as fits
      00 00 00 00  buffer 0
      00 00 00 00  cbuffer 0
      40 0d 03 00  quantum 200000
      00 00 00 00  level 0
      00 00 00 00  prio 0
    0c 00 06 00  TCA_HTB_RATE64
      00 e8 76 48 17 00 00 00
    0c 00 07 00  TCA_HTB_CEIL64
      00 e8 76 48 17 00 00 00
  }
`;

  test('sends rates beyond 32 bits as TCA_HTB_RATE64 and TCA_HTB_CEIL64', () => {
    const fast = { rateBytes: 1e11, ceilBytes: 1e11, bufferTicks: 0, quantumBytes: 200_000 };
    expect(sentBy(socket => socket.request(htbClassRequest(3, 1, fast)))).toEqual(bytesOf(CLASS_64));
    expect(answering(() => [bodyOf(CLASS_64)], listed)).toMatchObject([{ htb: fast }]);
  });
});

test('listClasses() names the device, and accepts classes of other kinds', () => {
  const asked: number[] = [];
  const other = classMessage.encode({ index: 3, handle: 0x20001 }, { kind: 'hfsc' });
  const found = answering(request => {
    asked.push(classMessage.decode(request.body).header.index);
    return [other];
  }, listed);
  expect(asked).toEqual([3]);
  expect(found).toEqual([{ kind: 'hfsc', handle: 0x20001, parent: 0, htb: undefined }]);
});

function listed(socket: Parameters<typeof listClasses>[0]) {
  return listClasses(socket, 3);
}
