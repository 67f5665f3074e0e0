import { expect, test } from 'bun:test';
import { asWord, findIfnameProblem, isUnicastMac, parseMac, renderMac } from '../../../src/net/interface.ts';

test.each(['eth0', 'a', 'fifteen-bytes-x', 'eth0.100', 'back\\slash', 'ä', '\u200b', '...'])(
  'findIfnameProblem() accepts %j',
  name => {
    expect(findIfnameProblem(name)).toBeUndefined();
  },
);

test.each([
  ['', 'is empty'],
  ['sixteen-bytes-xx', 'longer than 15 bytes'],
  ['ääääääää', 'longer than 15 bytes'],
  ['.', '"." or ".."'],
  ['..', '"." or ".."'],
  ['a/b', 'must not contain'],
  ['a:b', 'must not contain'],
  ['a b', 'must not contain'],
  ['a\tb', 'must not contain'],
  ['eth0\n', 'must not contain'],
  ['a\u0085b', 'must not contain'],
  ['a\u00a0b', 'must not contain'],
  ['a\u3000b', 'must not contain'],
  ['a\0b', 'must not contain'],
  ['net%d', 'must not contain "%"'],
  ['100%', 'must not contain "%"'],
  ['all', 'stands for'],
  ['default', 'stands for'],
])('findIfnameProblem() refuses %j', (name, problem) => {
  expect(findIfnameProblem(name)).toContain(problem);
});

test.each([
  ['0a:58:0a:01:02:03', '0a:58:0a:01:02:03'],
  ['0A-58-0A-01-02-03', '0a:58:0a:01:02:03'],
  ['0a58.0a01.0203', '0a:58:0a:01:02:03'],
])('parseMac() reads %s', (text, expected) => {
  expect(renderMac(parseMac(text))).toBe(expected);
});

test.each([
  ...['', '0a:58:0a:01:02', '0a:58:0a:01:02:03:04', '0a:58:0a:01:02:3', 'g0:58:0a:01:02:03', '0a580a010203'],
  ...['0a58.0a01', ' 0a:58:0a:01:02:03', '0a:58:0a:01:02:03\n'],
])('parseMac() refuses %j', text => {
  expect(() => parseMac(text)).toThrow(`Cannot read hardware address "${text}"`);
});

test.each([
  ['0a:58:0a:01:02:03', true],
  ['00:00:00:00:00:01', true],
  ['00:00:00:00:00:00', false],
  ['01:00:5e:00:00:01', false],
  ['ff:ff:ff:ff:ff:ff', false],
])('isUnicastMac(%s) is %p', (text, expected) => {
  expect(isUnicastMac(parseMac(text))).toBe(expected);
});

test('asWord() has a shell read any name as one word', async () => {
  expect(['eth0', '/run/netns/web', 'net/ipv4/conf/eth0.1/rp_filter=2'].map(asWord).join(' ')).toBe(
    'eth0 /run/netns/web net/ipv4/conf/eth0.1/rp_filter=2',
  );
  const names = ['a;exit', '$(exit)', '`exit`', "it's", '"', '\\', '*', '~', '', '-', '\u001b[2J', 'é'];
  const shell = Bun.spawn(['sh', '-c', `printf '%s\\n' ${names.map(asWord).join(' ')}`]);
  expect(await shell.stdout.text()).toBe(`${names.join('\n')}\n`);
});
