// Are any bytes from a DHCP server, and any content of a lease's record, handled?

import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import {
  Code,
  decodeDatagram,
  decodeMessage,
  decodeOptions,
  encodeDatagram,
  encodeMessage,
  MessageType,
} from '../../../plugins/dhcp/codec.ts';
import * as ipv6 from '../../../plugins/dhcp/ipv6/codec.ts';
import {
  Code as Code6,
  decodeAdvertisement,
  encodeAssociation,
  ROUTER_ADVERTISEMENT,
} from '../../../plugins/dhcp/ipv6/codec.ts';
import { grantIn } from '../../../plugins/dhcp/ipv6/lease.ts';
import { advertisedResolvers, prefixFor, resultOf as resultOf6 } from '../../../plugins/dhcp/ipv6/verbs.ts';
import { leaseOf, resultOf } from '../../../plugins/dhcp/lease.ts';
import { parseResult, renderResult } from '../../../src/cni/result.ts';
import { ipToBytes, parseCidr, parseIp } from '../../../src/net/ip.ts';
import { findUpkeep, upkeepLister } from '../../../src/node/upkeep/note.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedBytes, damagedText } from '../mutate.ts';

const SERVER = { address: Uint8Array.of(10, 77, 0, 1), port: 67 };
const CLIENT = { address: Uint8Array.of(10, 77, 0, 93), port: 68 };
const MAC = Uint8Array.of(2, 0, 0, 0, 0, 1);

function sample(type: number): Uint8Array {
  const text = (value: string) => new TextEncoder().encode(value);
  const options = new Map([
    [Code.messageType, Uint8Array.of(type)],
    [Code.serverId, SERVER.address],
    [Code.subnetMask, Uint8Array.of(255, 255, 255, 0)],
    [Code.routers, SERVER.address],
    [Code.classlessRoutes, Uint8Array.of(24, 192, 0, 2, 10, 77, 0, 9, 0, 10, 77, 0, 1)],
    [Code.domainSearch, Uint8Array.of(1, 97, 0, 1, 98, 0xc0, 0)],
    [Code.domainName, text('lan.example')],
    [Code.interfaceMtu, Uint8Array.of(5, 120)],
    [Code.leaseTime, Uint8Array.of(0, 0, 0, 120)],
  ]);
  const message = encodeMessage({
    ...{ xid: 7, secs: 0, broadcast: false, ciaddr: new Uint8Array(4), mac: MAC, options },
  });
  message[0] = 2;
  message.set(CLIENT.address, 16);
  return encodeDatagram(SERVER, CLIENT, message);
}

/** Packets of a server. */
export const packets = door({
  name: 'DHCP packets',
  weight: 1,
  arbitrary: damagedBytes([sample(MessageType.offer), sample(MessageType.ack), sample(MessageType.nak)]),
  run(packet) {
    const payload = decodeDatagram(packet, 67, 68);
    const message = payload && decodeMessage(payload);
    const lease = message && leaseOf({ message, mac: MAC }, 0);
    if (typeof lease === 'object') parseResult(renderResult(resultOf(lease, 1), '1.1.0'), '1.1.0');
  },
});

/** Areas of options as large as a datagram, of few kinds, in many pieces. */
export const options = door({
  name: 'DHCP options in pieces',
  weight: 0.2,
  arbitrary: fc
    .tuple(fc.uniqueArray(fc.integer({ min: 1, max: 254 }), { minLength: 1, maxLength: 3 }), fc.nat(4))
    .map(([codes, bytes]) => ({ codes, bytes })),
  run({ codes, bytes }) {
    const piece = codes.flatMap(code => [code, bytes, ...Array(bytes).fill(1)]);
    const times = Math.floor(65_000 / piece.length);
    const decoded = decodeOptions([Uint8Array.from(Array(times).fill(piece).flat())]);
    for (const code of codes)
      if (decoded.get(code)?.length !== bytes * times)
        throw new Error(`pieces of option ${code} are missing`);
  },
});

const IAID = Uint8Array.of(1, 2, 3, 4);

function sample6(type: number): Uint8Array {
  const granted = encodeAssociation(IAID, [parseIp('fd77::100')]);
  granted.fill(1, 32, 40);
  const options = [
    [Code6.serverId, Uint8Array.of(0, 2, 1)],
    [Code6.iaNa, granted],
    [Code6.nameservers, ipToBytes(parseIp('fd77::53'))],
    [Code6.domainSearch, Uint8Array.of(1, 97, 0, 1, 98, 0)],
    [Code6.statusCode, Uint8Array.of(0, 0, 111, 107)],
  ] as const;
  return ipv6.encodeMessage({ type, transaction: 7, options });
}

/** Messages of a server for IPv6. */
export const messages6 = door({
  name: 'DHCPv6 messages',
  weight: 1,
  arbitrary: damagedBytes([sample6(ipv6.MessageType.advertise), sample6(ipv6.MessageType.reply)]),
  run(bytes) {
    const message = ipv6.decodeMessage(bytes);
    const { lease } = message ? grantIn({ message, server: IAID, from: 'fe80::1' }, IAID, 0) : {};
    if (lease === undefined) return;
    const { nameservers, search } = lease;
    const findings = {
      addresses: [parseCidr(`${lease.address}/128`)],
      routers: [],
      priority: 1,
      version: '1.1.0' as const,
    };
    const result = resultOf6({ ...findings, resolvers: { nameservers, search } });
    parseResult(renderResult(result, '1.1.0'), '1.1.0');
  },
});

function advertisement(): Uint8Array {
  const prefix = [3, 4, 64, 0xc0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, ...ipToBytes(parseIp('fd77::'))];
  const resolver = [25, 3, 0, 0, 0, 0, 1, 0, ...ipToBytes(parseIp('fd77::53'))];
  const search = [31, 2, 0, 0, 0, 0, 1, 0, 1, 97, 0, 1, 98, 0, 0, 0];
  const body = [
    ROUTER_ADVERTISEMENT,
    0,
    0,
    0,
    64,
    0,
    1,
    0,
    ...new Uint8Array(8),
    ...prefix,
    ...resolver,
    ...search,
  ];
  const ends = [...ipToBytes(parseIp('fe80::1')), ...ipToBytes(parseIp('ff02::1'))];
  return Uint8Array.from([0x60, 0, 0, 0, 0, body.length, 58, 255, ...ends, ...body]);
}

/** Packets of a router. */
export const advertisements = door({
  name: 'router advertisements',
  weight: 1,
  arbitrary: damagedBytes([advertisement()]),
  run(packet) {
    const heard = decodeAdvertisement(packet);
    if (heard === undefined) return;
    const ip = parseIp('fd77::100');
    const addresses = [{ ip, prefix: prefixFor(ip, [heard]) }];
    const resolvers = advertisedResolvers([heard]);
    const result = resultOf6({
      addresses,
      routers: [heard],
      resolvers,
      priority: undefined,
      version: '1.1.0',
    });
    parseResult(renderResult(result, '1.1.0'), '1.1.0');
  },
});

const OWNER = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
const NOTE = JSON.stringify({
  ...OWNER,
  ...{ id: 'a', boot: 'b', dueAt: 1, call: { env: { CNI_NETNS: '/run/netns/a' }, stdin: '{}' }, state: {} },
});

/** Notes by which plugins are called again. */
export const notes = door({
  name: 'notes for upkeep',
  weight: 0.3,
  arbitrary: damagedText([NOTE, '', '[]', 'null']).map(text => ({ text })) satisfies fc.Arbitrary<object>,
  run({ text }) {
    const dir = ground().dir('state');
    const file = path.join(dir, 'upkeep/dhcp/podnet/c1:eth0');
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
    findUpkeep(dir, 'dhcp', OWNER);
    upkeepLister(dir)();
    fs.rmSync(dir, { recursive: true, force: true });
  },
});
