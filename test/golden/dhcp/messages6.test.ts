// Do messages have the bytes that a real exchange with kea 2.2.0 and radvd 2.19 had? (payloads of UDP, and a whole IPv6 packet)
import { describe, expect, test } from 'bun:test';
import {
  Code,
  decodeAdvertisement,
  decodeMessage,
  encodeAssociation,
  encodeMessage,
  MessageType,
  Status,
  statusIn,
} from '../../../plugins/dhcp/ipv6/codec.ts';
import { grantIn } from '../../../plugins/dhcp/ipv6/lease.ts';
import { parseCidr, parseIp } from '../../../src/net/ip.ts';

const hex = (...lines: readonly string[]) => Uint8Array.from(Buffer.from(lines.join(''), 'hex'));

const DUID = hex('0004330c95f7ef99d367d0992e4116c2227d');
const SERVER = hex('0002000009bf6b6561');
const IAID = hex('ff181e2d');
const ADDRESS = parseIp('fd77::100');
const WISHES = Uint8Array.of(0, Code.nameservers, 0, Code.domainSearch);
const NO_TIME = new Uint8Array(2);

const SOLICIT = hex(
  ...['01eab0d5000100120004330c95f7ef99d367d0992e4116c2227d000800020000', '0003000cff181e2d0000000000000000'],
  '0006000400170018',
);
const ADVERTISE = hex(
  ...['02eab0d5000100120004330c95f7ef99d367d0992e4116c2227d000200090002', '000009bf6b656100030028ff181e2d00'],
  ...['00070800000b4000050018fd77000000000000000000000000010000000e1000', '001c2000170010fd7700000000000000'],
  '00000000000053001800160161076578616d706c65000162076578616d706c6500',
);
const REQUEST = hex(
  ...['03a07c6a000100120004330c95f7ef99d367d0992e4116c2227d000800020000', '000200090002000009bf6b6561000300'],
  ...[
    '28ff181e2d000000000000000000050018fd7700000000000000000000000001',
    '00000000000000000000060004001700',
    '18',
  ],
);
const REPLY = hex(
  ...['07a07c6a000100120004330c95f7ef99d367d0992e4116c2227d000200090002', '000009bf6b656100030028ff181e2d00'],
  ...['00070800000b4000050018fd77000000000000000000000000010000000e1000', '001c2000170010fd7700000000000000'],
  '00000000000053001800160161076578616d706c65000162076578616d706c6500',
);
const RELEASE = hex(
  ...['08815536000100120004330c95f7ef99d367d0992e4116c2227d000800020000', '000200090002000009bf6b6561000300'],
  ...['28ff181e2d000000000000000000050018fd7700000000000000000000000001', '000000000000000000'],
);
const UNKNOWN = hex(
  ...['07815536000100120004330c95f7ef99d367d0992e4116c2227d000200090002', '000009bf6b65610003004bff181e2d00'],
  ...['00000000000000000d003b0003536f7272792c206e6f206b6e6f776e206c6561', '73657320666f72207468697320647569'],
  ...['642f696169642c2063616e27742072656c656173652e000d0029000353756d6d', '6172792073746174757320666f722061'],
  '6c6c2070726f6365737365642049415f4e4173',
);
const ADVERTISEMENT = hex(
  ...['6005667500683afffe80000000000000000000fffe000077fe80000000000000', '58de1afffe9d28eb8600de254080000c'],
  ...['000000000000000003044080000151800000384000000000fd77000000000000', '00000000000000001903000000000004'],
  ...['fd7700000000000000000000000000991f03000000000004036c616e07657861', '6d706c65000000000101020000000077'],
);

const server = [Code.serverId, SERVER] as const;
const own = (transaction: number, type: number, ...rest: readonly (readonly [number, Uint8Array])[]) =>
  encodeMessage({
    type,
    transaction,
    options: [[Code.clientId, DUID], [Code.elapsedTime, NO_TIME], ...rest],
  });

describe('what a client sends', () => {
  test('SOLICIT', () => {
    const options = [
      [Code.iaNa, encodeAssociation(IAID, [])],
      [Code.optionRequest, WISHES],
    ] as const;
    expect(own(0xeab0d5, MessageType.solicit, ...options)).toEqual(SOLICIT);
  });

  test('REQUEST and RELEASE', () => {
    const association = [Code.iaNa, encodeAssociation(IAID, [ADDRESS])] as const;
    const wishes = [Code.optionRequest, WISHES] as const;
    expect(own(0xa07c6a, MessageType.request, server, association, wishes)).toEqual(REQUEST);
    expect(own(0x815536, MessageType.release, server, association)).toEqual(RELEASE);
  });
});

describe('what a server sends', () => {
  const read = (bytes: Uint8Array, since: number) => {
    const message = decodeMessage(bytes);
    return message && { message, ...grantIn({ message, server: SERVER, from: 'fe80::1' }, IAID, since) };
  };

  test.each([
    ['ADVERTISE', ADVERTISE, MessageType.advertise, 0xeab0d5],
    ['REPLY', REPLY, MessageType.reply, 0xa07c6a],
  ] as const)('%s, and the lease in it', (_, bytes, type, transaction) => {
    const { message, lease } = read(bytes, 1000) ?? {};
    expect(message).toMatchObject({ type, transaction });
    expect(lease).toEqual({
      ...{ address: 'fd77::100', nameservers: ['fd77::53'], search: ['a.example', 'b.example'] },
      server: '0002000009bf6b6561',
      ...{ since: 1000, duration: 7200, preferred: 3600, renewAfter: 1800, rebindAfter: 2880 },
    });
  });

  test('that it does not know a lease', () => {
    const { message, refusal } = read(UNKNOWN, 0) ?? {};
    expect(refusal).toBe('it does not know the lease ("Summary status for all processed IA_NAs")');
    expect(statusIn(message?.options ?? []).code).toBe(Status.noBinding);
  });

  test('is not what a client sent', () => {
    expect(decodeMessage(SOLICIT)).toBeUndefined();
  });
});

test('what a router advertises', () => {
  expect(decodeAdvertisement(ADVERTISEMENT)).toEqual({
    ...{ router: parseIp('fe80::ff:fe00:77'), isDefault: true, managed: true },
    prefixes: [{ cidr: parseCidr('fd77::/64'), onLink: true, autonomous: false }],
    nameservers: [parseIp('fd77::99')],
    search: ['lan.example'],
  });
});
