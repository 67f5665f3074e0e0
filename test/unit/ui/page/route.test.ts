import { expect, test } from 'bun:test';
import { hrefOf, parseRoute } from '../../../../src/ui/page/route.ts';

test.each(['', '#', '#/', '#/nothing', '#/attachment/net', '#/%'])('"%s" is the first view', fragment => {
  expect(parseRoute(fragment)).toEqual({ view: 'attachments' });
});

test('an attachment with any name is found by its own address', () => {
  const key = { network: 'a/b c', containerId: '100%', ifname: 'eth0.5' };
  expect(parseRoute(hrefOf(key))).toEqual({ view: 'attachment', key, trace: undefined });
  expect(parseRoute(hrefOf(key, 'abc'))).toEqual({ view: 'attachment', key, trace: 'abc' });
});
