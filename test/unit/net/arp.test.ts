import { describe, expect, test } from 'bun:test';
import { findTaken, refuseHolder } from '../../../src/attach/conflict.ts';
import { decodeArp, encodeArpProbe } from '../../../src/net/arp.ts';
import { parseIp } from '../../../src/net/ip.ts';

const OWN = '02:00:00:00:00:01';
const OTHER = '02:00:00:00:00:02';
const IP = parseIp('10.1.0.2');
const NONE = parseIp('0.0.0.0');

describe('encodeArpProbe()', () => {
  test('writes a request without sender address, which is read again', () => {
    const bytes = encodeArpProbe(OWN, IP);
    // arping -D -I eth0 10.1.0.2, without the Ethernet header; it sends the broadcast address as target hardware address.
    expect(Buffer.from(bytes).toString('hex')).toBe(
      '0001080006040001020000000001000000000000000000000a010002',
    );
    expect(decodeArp(bytes)).toEqual({ senderMac: OWN, sender: NONE, target: IP });
  });
});

describe('decodeArp()', () => {
  test('ignores short messages and other protocols', () => {
    expect(decodeArp(new Uint8Array(27))).toBeUndefined();
    expect(decodeArp(new Uint8Array(28))).toBeUndefined();
  });
});

describe('findTaken()', () => {
  const elsewhere = parseIp('10.1.0.9');
  test.each([
    ['an answer or announcement of the holder', { senderMac: OTHER, sender: IP, target: NONE }, IP],
    ['a probe of another host for it', { senderMac: OTHER, sender: NONE, target: IP }, IP],
    ['our own probe', { senderMac: OWN, sender: NONE, target: IP }, undefined],
    ['a question of a neighbour', { senderMac: OTHER, sender: elsewhere, target: IP }, undefined],
    ['an answer for another address', { senderMac: OTHER, sender: elsewhere, target: NONE }, undefined],
  ])('%s', (_, message, taken) => {
    expect(findTaken(message, [IP], OWN)).toEqual(taken);
  });
});

test('reads a bounded number of frames at a time', () => {
  let read = 0;
  const flooded = () => {
    read++;
    return new Uint8Array(28);
  };
  refuseHolder(flooded, [IP], 'eth0', OWN);
  expect(read).toBe(1_000);
});
