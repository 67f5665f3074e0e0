import { describe, expect, test } from 'bun:test';
import { parseResolvConf, readResolvConf } from '../../../../plugins/host-local/plugin.ts';

describe('parseResolvConf()', () => {
  test('accumulates repeated directives and uses the last domain', () => {
    const text =
      'nameserver 192.0.2.0\nnameserver 192.0.2.1 ignored\ndomain a\ndomain b\nsearch x y\nsearch z\noptions ndots:1\noptions debug\n';
    expect(parseResolvConf(text)).toEqual({
      nameservers: ['192.0.2.0', '192.0.2.1'],
      domain: 'b',
      search: ['x', 'y', 'z'],
      options: ['ndots:1', 'debug'],
    });
  });

  test('skips comments, inline ones too, empty lines and keywords without value', () => {
    expect(parseResolvConf('# c\n; c\n\nsearch a # not b\nnameserver\n  nameserver\t10.0.0.1\r\n')).toEqual({
      nameservers: ['10.0.0.1'],
      search: ['a'],
    });
  });
});

describe('readResolvConf()', () => {
  test('names the file that is missing', () => {
    expect(() => readResolvConf('/nonexistent/resolv.conf')).toThrow('/nonexistent/resolv.conf');
  });
});
