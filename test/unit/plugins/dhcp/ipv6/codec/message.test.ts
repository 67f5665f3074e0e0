// Does any sequence of bytes end in a message or in nothing, within bounds?

import { describe, expect, test } from 'bun:test';
import fc from 'fast-check';
import { encodeAssociation } from '../../../../../../plugins/dhcp/ipv6/codec/association.ts';
import {
  decodeMessage,
  encodeMessage,
  MessageType,
} from '../../../../../../plugins/dhcp/ipv6/codec/message.ts';
import {
  Code,
  decodeOptions,
  encodeOptions,
  statusIn,
} from '../../../../../../plugins/dhcp/ipv6/codec/options.ts';
import { grantIn } from '../../../../../../plugins/dhcp/ipv6/lease.ts';
import { resultOf } from '../../../../../../plugins/dhcp/ipv6/obtain.ts';
import { parseResult, renderResult } from '../../../../../../src/cni/result.ts';
import { parseCidr, parseIp } from '../../../../../../src/net/ip.ts';

const RUNS = { numRuns: Number(process.env.CATENA_PROPERTY_RUNS ?? 2_000) };
const IAID = Uint8Array.of(1, 2, 3, 4);
const bytes = (maxLength: number) => fc.uint8Array({ maxLength });
const number = fc.integer({ min: 0, max: 0xffffffff });

const options = fc.array(fc.tuple(fc.constantFrom(...Object.values(Code)), bytes(80)), { maxLength: 10 });

/** An association with any times, and one address with any lifetimes. */
const association = fc
  .tuple(fc.uint8Array({ minLength: 16, maxLength: 16 }), number, number, number, number)
  .map(([ip, t1, t2, preferred, valid]) => {
    const value = encodeAssociation(IAID, [parseIp('2001:db8::1')]);
    const view = new DataView(value.buffer);
    value.set(ip, 16);
    for (const [at, one] of [
      [4, t1],
      [8, t2],
      [32, preferred],
      [36, valid],
    ] as const)
      view.setUint32(at, one);
    return value;
  });

function answerOf(payload: Uint8Array) {
  const message = decodeMessage(payload);
  return message && { message, server: Uint8Array.of(0, 1), from: 'fe80::1' };
}

describe('a message', () => {
  test('that was encoded is decoded to the same', () => {
    fc.assert(
      fc.property(options, fc.integer({ min: 0, max: 0xffffff }), (given, transaction) => {
        const message = { type: MessageType.reply, transaction, options: given };
        expect(decodeMessage(encodeMessage(message))).toEqual(message);
      }),
      RUNS,
    );
  });

  test('of any bytes is decoded or not, without an exception', () => {
    fc.assert(
      fc.property(bytes(400), noise => {
        const answer = answerOf(noise);
        if (answer) grantIn(answer, IAID, 0);
      }),
      RUNS,
    );
  });

  test('that is cut anywhere is not decoded, unless an option ends there', () => {
    fc.assert(
      fc.property(options, fc.nat(200), (given, length) => {
        const whole = encodeOptions(given);
        const decoded = decodeOptions(whole.subarray(0, length));
        if (decoded) expect(encodeOptions(decoded)).toEqual(whole.slice(0, length));
      }),
      RUNS,
    );
  });

  test('with options of any content grants a lease within bounds, or says why not', () => {
    fc.assert(
      fc.property(association, options, (own, more) => {
        const all = [[Code.iaNa, own] as const, ...more];
        const answer = answerOf(encodeMessage({ type: MessageType.reply, transaction: 7, options: all }));
        const { lease, refusal } = answer ? grantIn(answer, IAID, 0) : {};
        if (lease === undefined) return expect(refusal).toMatch(/^[\x20-\x7e]+$/);
        const { duration, preferred, renewAfter, rebindAfter, nameservers, search } = lease;
        expect(lease.address).not.toMatch(/^(fe[89ab][0-9a-f]|ff[0-9a-f]{2}):|^::1?$/);
        if (duration !== undefined) {
          expect(duration).toBeGreaterThanOrEqual(10);
          expect(preferred).toBeLessThanOrEqual(duration);
          expect(renewAfter).toBeLessThanOrEqual(rebindAfter ?? -1);
          expect(rebindAfter).toBeLessThan(duration);
        }
        const addresses = [parseCidr(`${lease.address}/128`)];
        const result = resultOf({
          addresses,
          routers: [],
          resolvers: { nameservers, search },
          priority: 1,
          version: '1.1.0',
        });
        parseResult(renderResult(result, '1.1.0'), '1.1.0');
      }),
      RUNS,
    );
  });

  test.each([
    [[0, 2], 2, 'it has no free address'],
    [[0, 3, 0x67, 0x6f, 0x6e, 0x65], 3, 'it does not know the lease ("gone")'],
    [[0, 4, 10], 4, 'the address does not belong on this network ("?")'],
    [[0, 9], 9, 'status 9'],
    [[0], 1, 'it failed without a reason'],
    [[0, 0], 0, ''],
  ] as const)('status %j is explained', (value, code, text) => {
    expect(statusIn([[Code.statusCode, Uint8Array.from(value)]])).toMatchObject({
      code,
      ...(code ? { text } : {}),
    });
  });
});
