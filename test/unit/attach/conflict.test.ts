import { describe, expect, test } from 'bun:test';
import { decodeArp, encodeArpProbe, findTaken, readAnswers } from '../../../src/attach/conflict.ts';
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
  readAnswers(flooded, { wanted: [IP], gateways: [], name: 'eth0', own: OWN });
  expect(read).toBe(1_000);
});

test('hears a gateway, and not our own question for it', () => {
  const gateway = parseIp('10.1.0.1');
  const heard = (bytes: Uint8Array) => {
    const frames = [bytes];
    const question = { wanted: [IP], gateways: [gateway], name: 'eth0', own: OWN };
    return readAnswers(() => frames.pop(), question);
  };
  const answer = encodeArpProbe(OTHER, NONE);
  answer.set([10, 1, 0, 1], 14);
  expect(heard(answer)).toBe(true);
  expect(heard(encodeArpProbe(OWN, gateway))).toBe(false);
  expect(heard(encodeArpProbe(OTHER, parseIp('10.1.0.9')))).toBe(false);
});
