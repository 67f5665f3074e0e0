// Are filters and their redirects described to the kernel, and read from it, byte for byte?
import { expect, test } from 'bun:test';
import { parseCidr } from '../../../src/net/ip.ts';
import {
  egressRedirect,
  filterMessage,
  listFilters,
  listIngressFilters,
  MATCH_ALL,
  matchSubnet,
  redirectRequest,
  removeIngressFiltersRequest,
  subnetFilterRequest,
  tcMirred,
  tcU32Key,
  tcU32Sel,
} from '../../../src/netlink/rtnl/filter.ts';
import { tcHandle } from '../../../src/netlink/rtnl/qdisc.ts';
import { answering, bodyOf, bytesOf, sentBy } from './captured.ts';

test('the structs are as large as in linux/pkt_cls.h and linux/tc_act/tc_mirred.h', () => {
  expect([tcU32Sel.size, tcU32Key.size, tcMirred.size]).toEqual([16, 16, 28]);
});

// tc filter add dev veth0 ingress pref 1 protocol all u32 match u32 0 0 classid 1:1
//    action mirred egress redirect dev bwp0
// `tc` sends the same but for NLA_F_NESTED, which it sets on TCA_ACT_OPTIONS only.
const ADD = `
  94 00 00 00  nlmsg_len 148
  2c 00  nlmsg_type RTM_NEWTFILTER
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 00  tcm_handle 0
  f2 ff ff ff  tcm_parent 0xfffffff2
  00 03 01 00  tcm_info 0x10300
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
  68 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    08 00 01 00  TCA_U32_CLASSID
      01 00 01 00  65537
    38 00 07 80  TCA_U32_ACT (NLA_F_NESTED) {
      34 00 01 80  order 1 (NLA_F_NESTED) {
        0b 00 01 00  TCA_ACT_KIND
          6d 69 72 72 65 64 00  "mirred"
        00  padding
        24 00 02 80  TCA_ACT_OPTIONS (NLA_F_NESTED) {
          20 00 02 00  TCA_MIRRED_PARMS
            00 00 00 00  index 0
            00 00 00 00  capab 0
            04 00 00 00  action 4
            00 00 00 00  refcnt 0
            00 00 00 00  bindcnt 0
            01 00 00 00  eaction 1
            04 00 00 00  ifindex 4
        }
      }
    }
    24 00 05 00  TCA_U32_SEL
      01  flags 1
      00  offshift 0
      01  nkeys 1
      00  padding
      00 00  offmask 0
      00 00  off 0
      00 00  offoff 0
      00 00  hoff 0
      00 00 00 00  hmask 0
      00 00 00 00  keys[0].mask 0
      00 00 00 00  keys[0].val 0
      00 00 00 00  keys[0].off 0
      00 00 00 00  keys[0].offmask 0
  }
`;

test('redirectRequest() sends a filter that matches everything and redirects it', () => {
  const redirect = { preference: 1, target: 4 };
  expect(sentBy(socket => socket.request(redirectRequest(3, redirect)))).toEqual(bytesOf(ADD));
  expect(filterMessage.decode(bodyOf(ADD)).attrs).toEqual({
    kind: 'u32',
    options: {
      classid: 0x10001,
      actions: [
        { kind: 'mirred', options: { parms: { ...tcMirred.zero, action: 4, eaction: 1, ifindex: 4 } } },
      ],
      selector: { flags: 1, keys: [tcU32Key.zero] },
    },
  });
});

// The same, as `tc` sent it (strace -e trace=sendmsg -e write=3).
const THEIRS = `
  94 00 00 00  nlmsg_len 148
  2c 00  nlmsg_type RTM_NEWTFILTER
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  d3 3b 01 6b  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 00  tcm_handle 0
  f2 ff ff ff  tcm_parent 0xfffffff2
  00 03 01 00  tcm_info 0x10300
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
  68 00 02 00  TCA_OPTIONS {
    08 00 01 00  TCA_U32_CLASSID
      01 00 01 00  65537
    38 00 07 00  TCA_U32_ACT {
      34 00 01 00  order 1 {
        0b 00 01 00  TCA_ACT_KIND
          6d 69 72 72 65 64 00  "mirred"
        00  padding
        24 00 02 80  TCA_ACT_OPTIONS (NLA_F_NESTED) {
          20 00 02 00  TCA_MIRRED_PARMS
            00 00 00 00  index 0
            00 00 00 00  capab 0
            04 00 00 00  action 4
            00 00 00 00  refcnt 0
            00 00 00 00  bindcnt 0
            01 00 00 00  eaction 1
            04 00 00 00  ifindex 4
        }
      }
    }
    24 00 05 00  TCA_U32_SEL
      01  flags 1
      00  offshift 0
      01  nkeys 1
      00  padding
      00 00  offmask 0
      00 00  off 0
      00 00  offoff 0
      00 00  hoff 0
      00 00 00 00  hmask 0
      00 00 00 00  keys[0].mask 0
      00 00 00 00  keys[0].val 0
      00 00 00 00  keys[0].off 0
      00 00 00 00  keys[0].offmask 0
  }
`;

test('filterMessage.decode() reads what `tc` sends', () => {
  expect(filterMessage.decode(bodyOf(THEIRS))).toEqual(filterMessage.decode(bodyOf(ADD)));
});

// tc filter add dev veth0 parent 1: pref 16 protocol ip u32 match ip src 10.0.0.0/8 flowid 1:1
// `tc` sends the same without NLA_F_NESTED.
const SUBNET = `
  5c 00 00 00  nlmsg_len 92
  2c 00  nlmsg_type RTM_NEWTFILTER
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 00  tcm_handle 0
  00 00 01 00  tcm_parent 0x10000
  08 00 10 00  tcm_info 0x100008
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
  30 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    08 00 01 00  TCA_U32_CLASSID
      01 00 01 00  65537
    24 00 05 00  TCA_U32_SEL
      01  flags 1
      00  offshift 0
      01  nkeys 1
      00  padding
      00 00  offmask 0
      00 00  off 0
      00 00  offoff 0
      00 00  hoff 0
      00 00 00 00  hmask 0
      ff 00 00 00  keys[0].mask 0xff000000
      0a 00 00 00  keys[0].val 0x0a000000
      0c 00 00 00  keys[0].off 12
      00 00 00 00  keys[0].offmask 0
  }
`;

// tc filter add dev veth0 parent 1: pref 15 protocol ipv6 u32 match ip6 dst fd00:db8:abcd:1234:e000::/68 flowid 1:1
// `tc` sends the same without NLA_F_NESTED.
const SUBNET_6 = `
  7c 00 00 00  nlmsg_len 124
  2c 00  nlmsg_type RTM_NEWTFILTER
  05 06  nlmsg_flags REQUEST|ACK|EXCL|CREATE
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 00  tcm_handle 0
  00 00 01 00  tcm_parent 0x10000
  86 dd 0f 00  tcm_info 0xfdd86
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
  50 00 02 80  TCA_OPTIONS (NLA_F_NESTED) {
    08 00 01 00  TCA_U32_CLASSID
      01 00 01 00  65537
    44 00 05 00  TCA_U32_SEL
      01  flags 1
      00  offshift 0
      03  nkeys 3
      00  padding
      00 00  offmask 0
      00 00  off 0
      00 00  offoff 0
      00 00  hoff 0
      00 00 00 00  hmask 0
      ff ff ff ff  keys[0].mask
      fd 00 0d b8  keys[0].val
      18 00 00 00  keys[0].off 24
      00 00 00 00  keys[0].offmask 0
      ff ff ff ff  keys[1].mask
      ab cd 12 34  keys[1].val
      1c 00 00 00  keys[1].off 28
      00 00 00 00  keys[1].offmask 0
      f0 00 00 00  keys[2].mask
      e0 00 00 00  keys[2].val
      20 00 00 00  keys[2].off 32
      00 00 00 00  keys[2].offmask 0
  }
`;

test('subnetFilterRequest() sends a key for each word that the prefix covers', () => {
  const classid = tcHandle(1, 1);
  const four = { preference: 16, subnet: parseCidr('10.0.0.0/8'), end: 'source', classid } as const;
  const subnet = parseCidr('fd00:db8:abcd:1234:e000::/68');
  const six = { preference: 15, subnet, end: 'destination', classid } as const;
  expect(sentBy(socket => socket.request(subnetFilterRequest(3, four)))).toEqual(bytesOf(SUBNET));
  expect(sentBy(socket => socket.request(subnetFilterRequest(3, six)))).toEqual(bytesOf(SUBNET_6));
  const found = answering(
    () => [SUBNET, SUBNET_6].map(bodyOf),
    socket => listFilters(socket, 3, tcHandle(1, 0)),
  );
  expect(found).toMatchObject([
    { preference: 16, protocol: 0x800, classid, selector: matchSubnet(four.subnet, 'source') },
    { preference: 15, protocol: 0x86dd, classid, selector: matchSubnet(six.subnet, 'destination') },
  ]);
});

// tc filter del dev veth0 ingress pref 1 protocol all u32
// `tc` sends exactly this, sequence number apart.
const REMOVE = `
  2c 00 00 00  nlmsg_len 44
  2d 00  nlmsg_type RTM_DELTFILTER
  05 00  nlmsg_flags REQUEST|ACK
  00 00 00 00  nlmsg_seq
  00 00 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 00  tcm_handle 0
  f2 ff ff ff  tcm_parent 0xfffffff2
  00 03 01 00  tcm_info 0x10300
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
`;

test('removeIngressFiltersRequest() names preference, protocol and kind', () => {
  expect(
    sentBy(socket => socket.request(removeIngressFiltersRequest(3, { preference: 1, protocol: 3 }))),
  ).toEqual(bytesOf(REMOVE));
});

// The answers of Linux 6.18 to: tc filter show dev veth0 ingress
const SHOWN_PREFERENCE = `
  34 00 00 00  nlmsg_len 52
  2c 00  nlmsg_type RTM_NEWTFILTER
  02 00  nlmsg_flags MULTI
  d3 3b 01 6b  nlmsg_seq
  25 2b 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 00  tcm_handle 0
  f2 ff ff ff  tcm_parent 0xfffffff2
  00 03 01 00  tcm_info 0x10300
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
  08 00 0b 00  TCA_CHAIN
    00 00 00 00  0
`;
const SHOWN_TABLE = `
  40 00 00 00  nlmsg_len 64
  2c 00  nlmsg_type RTM_NEWTFILTER
  02 00  nlmsg_flags MULTI
  d3 3b 01 6b  nlmsg_seq
  25 2b 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 00 00 80  tcm_handle 0x80000000
  f2 ff ff ff  tcm_parent 0xfffffff2
  00 03 01 00  tcm_info 0x10300
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
  08 00 0b 00  TCA_CHAIN
    00 00 00 00  0
  0c 00 02 00  TCA_OPTIONS {
    08 00 04 00  TCA_U32_DIVISOR
      01 00 00 00  1
  }
`;
const SHOWN_FILTER = `
  1c 01 00 00  nlmsg_len 284
  2c 00  nlmsg_type RTM_NEWTFILTER
  02 00  nlmsg_flags MULTI
  d3 3b 01 6b  nlmsg_seq
  25 2b 00 00  nlmsg_pid
  00  tcm_family 0
  00 00 00  padding
  03 00 00 00  tcm_ifindex 3
  00 08 00 80  tcm_handle 0x80000800
  f2 ff ff ff  tcm_parent 0xfffffff2
  00 03 01 00  tcm_info 0x10300
  08 00 01 00  TCA_KIND
    75 33 32 00  "u32"
  08 00 0b 00  TCA_CHAIN
    00 00 00 00  0
  e8 00 02 00  TCA_OPTIONS {
    24 00 05 00  TCA_U32_SEL
      01  flags 1
      00  offshift 0
      01  nkeys 1
      00  padding
      00 00  offmask 0
      00 00  off 0
      00 00  offoff 0
      00 00  hoff 0
      00 00 00 00  hmask 0
      00 00 00 00  keys[0].mask 0
      00 00 00 00  keys[0].val 0
      00 00 00 00  keys[0].off 0
      00 00 00 00  keys[0].offmask 0
    08 00 02 00  TCA_U32_HASH
      00 00 00 80  2147483648
    08 00 01 00  TCA_U32_CLASSID
      01 00 01 00  65537
    08 00 0b 00  TCA_U32_FLAGS
      08 00 00 00  8
    a8 00 07 00  TCA_U32_ACT {
      a4 00 01 00  order 1 {
        0b 00 01 00  TCA_ACT_KIND
          6d 69 72 72 65 64 00  "mirred"
        00  padding
        44 00 04 00  TCA_ACT_STATS, not in our table
          14 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 14 00 07 00 00 00 00 00 00 00 00 00  bytes 0 to 31
          00 00 00 00 00 00 00 00 18 00 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  bytes 32 to 63
        08 00 0a 00  TCA_ACT_IN_HW_COUNT
          00 00 00 00  0
        48 00 02 00  TCA_ACT_OPTIONS {
          20 00 02 00  TCA_MIRRED_PARMS
            01 00 00 00  index 1
            00 00 00 00  capab 0
            04 00 00 00  action 4
            01 00 00 00  refcnt 1
            01 00 00 00  bindcnt 1
            01 00 00 00  eaction 1
            04 00 00 00  ifindex 4
          24 00 01 00  TCA_MIRRED_TM
            01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        }
      }
    }
  }
`;

const BODIES = [SHOWN_PREFERENCE, SHOWN_TABLE, SHOWN_FILTER].map(bodyOf);

test('listIngressFilters() reads the filter, and leaves out preference and hash table', () => {
  const filters = answering(
    () => BODIES,
    socket => listIngressFilters(socket, 3),
  );
  expect(filters).toEqual([
    {
      index: 3,
      kind: 'u32',
      preference: 1,
      protocol: 3,
      matches: true,
      redirectAllTo: 4,
      classid: 0x10001,
      selector: MATCH_ALL,
    },
  ]);
});

test('listIngressFilters() takes neither a mirror nor a redirect of a subnet for one of every packet', () => {
  const redirect = egressRedirect(4);
  const parms = { ...tcMirred.zero, eaction: 2, ifindex: 4 };
  const subnet = matchSubnet(parseCidr('10.1.0.0/16'), 'source');
  const bodies = [
    { selector: MATCH_ALL, actions: [redirect] },
    { selector: MATCH_ALL, actions: [{ ...redirect, options: { parms } }] },
    { selector: subnet, actions: [redirect] },
  ].map(options => filterMessage.encode({ index: 3 }, { kind: 'u32', options }));
  const filters = answering(
    () => bodies,
    socket => listIngressFilters(socket, 3),
  );
  expect(filters.map(({ redirectAllTo }) => redirectAllTo)).toEqual([4, undefined, undefined]);
});

test('filterMessage.decode() keeps unknown attributes inside an action', () => {
  const { options } = filterMessage.decode(BODIES[2] ?? new Uint8Array()).attrs;
  const [action] = options instanceof Uint8Array ? [] : (options?.actions ?? []);
  expect(action?.unknown?.map(({ type }) => type)).toEqual([4, 10]);
});
