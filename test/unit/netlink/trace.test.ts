// Can a person read what went over the wire?
import { describe, expect, test } from 'bun:test';
import { parseIp } from '../../../src/net/ip.ts';
import { decodeMessages, type Envelope, encodeMessages } from '../../../src/netlink/codec.ts';
import { addElements } from '../../../src/netlink/nft/element.ts';
import { batchBegin } from '../../../src/netlink/nft/message.ts';
import { IFF_UP, linkMessage } from '../../../src/netlink/rtnl/link.ts';
import { renderMessage } from '../../../src/netlink/trace.ts';

describe('renderMessage()', () => {
  test('names message, flags, header and attributes of a device', () => {
    const body = linkMessage.encode(
      { flags: IFF_UP, change: IFF_UP },
      {
        ifname: 'veth0',
        mtu: 1400,
        linkinfo: { kind: 'veth', data: { peer: { ifname: 'eth0', netnsFd: 5 } } },
      },
    );
    expect(renderMessage('send', 0, { type: 16, flags: 0x605, seq: 7, body })).toBe(
      `
┌ send RTM_NEWLINK REQUEST|ACK|EXCL|CREATE seq=7
│ (flags 1, change 1)
│ ifname: "veth0"
│ mtu: 1400
│ linkinfo
│   kind: "veth"
│   data
│     peer
│       ifname: "eth0"
│       netnsFd: 5
└`.trim(),
    );
  });

  test('names the elements of an nf_tables map', () => {
    const table = { family: 'inet', name: 'catena_test' } as const;
    const set = { table, name: 'map4', key: ['ipv4_addr'], data: ['inet_service'] } as const;
    const [request] = addElements(set, [{ key: [parseIp('10.9.0.2')], data: [80], comment: 'net/ctr/eth0' }]);
    if (request === undefined) throw new Error('Cannot render: nothing was built');
    const { type, flags = 0, body } = request;
    expect(renderMessage('send', 12, { type, flags, seq: 2, body })).toBe(
      `
┌ send NFT_MSG_NEWSETELEM CREATE seq=2
│ (family 1)
│ table: "catena_test"
│ set: "map4"
│ elements[0]
│   key
│     value: 0a 09 00 02
│   data
│     value: 00 50
│   comment: "net/ctr/eth0"
└`.trim(),
    );
  });

  test('names the beginning of a transaction', () => {
    const { type, body } = batchBegin(37);
    expect(renderMessage('send', 12, { type, flags: 1, seq: 1, body })).toBe(
      '┌ send NFNL_MSG_BATCH_BEGIN REQUEST seq=1\n│ (resId 10)\n│ generation: 37\n└',
    );
  });

  test('shows the answer of the kernel', () => {
    const body = new Uint8Array(20);
    const view = new DataView(body.buffer);
    view.setInt32(0, -17, true);
    view.setUint32(12, 7, true);
    expect(renderMessage('recv', 0, { type: 2, flags: 0x300, seq: 7, body })).toBe(
      '┌ recv NLMSG_ERROR CAPPED|ACK_TLVS seq=7\n│ reply to seq=7: object exists (EEXIST)\n└',
    );
    view.setInt32(0, 0, true);
    expect(renderMessage('recv', 0, { type: 2, flags: 0x100, seq: 7, body })).toContain(
      'reply to seq=7: done',
    );
    expect(renderMessage('recv', 0, { type: 3, flags: 2, seq: 7, body: new Uint8Array(4) })).toBe(
      '┌ recv NLMSG_DONE MULTI seq=7\n└',
    );
  });

  test('keeps attributes that are in no table', () => {
    const newer = { unknown: [{ type: 99, bytes: Uint8Array.of(1, 0xff) }] };
    const body = linkMessage.encode({}, { ifname: 'lo', ...newer });
    expect(renderMessage('recv', 0, received(16, body))).toBe(
      '┌ recv RTM_NEWLINK 0 seq=1\n│ ifname: "lo"\n│ unknown 99: 01 ff\n└',
    );
  });

  test('shows bytes and text of messages that are in no table', () => {
    const message = { type: 999, flags: 0x8005, seq: 3, body: Buffer.from('eth0\0 and what follows it') };
    expect(renderMessage('send', 0, message)).toBe(
      `
┌ send protocol=0 type=999 REQUEST|ACK|0x8000 seq=3
│ 0000  65 74 68 30 00 20 61 6e 64 20 77 68 61 74 20 66  eth0. and what f
│ 0010  6f 6c 6c 6f 77 73 20 69 74                       ollows it
└`.trim(),
    );
  });

  test('shows why a message cannot be read, and its bytes', () => {
    const text = renderMessage('recv', 0, { type: 16, flags: 0, seq: 1, body: Uint8Array.of(0, 0, 1) });
    expect(text).toBe(
      '┌ recv RTM_NEWLINK 0 seq=1\n│ struct ifinfomsg: expected 16 bytes, found 3\n' +
        '│ 0000  00 00 01                                         ...\n└',
    );
  });
});

/** The message as it comes out of a receive buffer. */
function received(type: number, body: Uint8Array): Envelope {
  const [message] = decodeMessages(encodeMessages([{ type, flags: 0, seq: 1, body }]));
  if (message === undefined) throw new Error('Cannot read message back');
  return message;
}
