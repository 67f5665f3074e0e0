import { expect, test } from 'bun:test';
import { hrefOf, hrefOfPacket, parseRoute } from '../../../../src/ui/page/route.ts';

test.each(['', '#', '#/', '#/nothing', '#/attachment/net', '#/%'])('"%s" is the first view', fragment => {
  expect(parseRoute(fragment)).toEqual({ view: 'attachments' });
});

test('an attachment with any name is found by its own address', () => {
  const key = { network: 'a/b c', containerId: '100%', ifname: 'eth0.5' };
  expect(parseRoute(hrefOf(key))).toEqual({ view: 'attachment', key, trace: undefined });
  expect(parseRoute(hrefOf(key, 'abc'))).toEqual({ view: 'attachment', key, trace: 'abc' });
});

test('a packet is followed between ends with any letters', () => {
  for (const [from, to] of [
    ['', ':8080'],
    ['shop/web', '[fd00::7]:53/udp'],
  ] as const)
    expect(parseRoute(hrefOfPacket(from, to))).toEqual({ view: 'why-not', from, to });
  expect(parseRoute('#/why-not')).toEqual({ view: 'why-not', from: '', to: '' });
});
