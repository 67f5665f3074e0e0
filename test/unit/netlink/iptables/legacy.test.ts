// Are rules of the legacy packet filter read from the bytes that the kernel keeps?
import { describe, expect, test } from 'bun:test';
import { parseCidr } from '../../../../src/net/cidr.ts';
import { decodeEntries } from '../../../../src/netlink/iptables/legacy.ts';

/** Offsets in struct ipt_entry; see linux/netfilter_ipv4/ip_tables.h. */
const AT = { src: 0, dst: 4, smsk: 8, dmsk: 12, inMask: 48, outMask: 64, proto: 80, invflags: 83 };
const ENTRY_BYTES = 112;
const TARGET_BYTES = 40;

describe('decodeEntries()', () => {
  test('reads addresses and protocol', () => {
    expect(
      decode({ src: [10, 9, 0, 0], smsk: [255, 255, 0, 0], dst: [10, 8, 0, 1], dmsk: ONES, proto: [6] }),
    ).toEqual({
      chain: 'POSTROUTING',
      target: 'ACCEPT',
      protocol: 6,
      source: { cidr: parseCidr('10.9.0.0/16'), not: false },
      destination: { cidr: parseCidr('10.8.0.1/32'), not: false },
    });
  });

  test('reads which addresses are inverted', () => {
    const rule = decode({ src: [10, 9, 0, 1], smsk: ONES, dst: [10, 8, 0, 1], dmsk: ONES, invflags: [0x10] });
    expect([rule?.source?.not, rule?.destination?.not, rule?.more]).toEqual([false, true, undefined]);
  });

  test.each<[string, Parts]>([
    ['a mask that is no prefix', { dst: [10, 0, 0, 1], dmsk: [255, 0, 0, 255] }],
    ['an incoming interface', { inMask: ONES }],
    ['an outgoing interface', { outMask: ONES }],
    ['all protocols but one', { proto: [6], invflags: [0x40] }],
    ['all fragments but the first', { invflags: [0x20] }],
  ])('says that it has not read everything: %s', (_what, parts) => {
    expect(decode(parts)).toMatchObject({ source: undefined, destination: undefined, more: true });
  });
});

const ONES = [255, 255, 255, 255];
type Parts = Partial<Record<keyof typeof AT, readonly number[]>>;

/** One rule of POSTROUTING with `-j ACCEPT`. */
function decode(parts: Parts) {
  const bytes = new Uint8Array(ENTRY_BYTES + TARGET_BYTES);
  const view = new DataView(bytes.buffer);
  for (const [name, value] of Object.entries(parts)) bytes.set(value, AT[name as keyof typeof AT]);
  view.setUint16(88, ENTRY_BYTES, true);
  view.setUint16(90, bytes.length, true);
  view.setUint16(ENTRY_BYTES, TARGET_BYTES, true);
  view.setInt32(ENTRY_BYTES + 32, -2, true);
  return decodeEntries(4, bytes, new Map([[0, 'POSTROUTING']]))[0];
}
