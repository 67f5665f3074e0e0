// Are secrets gone before anything is kept, and is everything else still there?
import { describe, expect, test } from 'bun:test';
import { isSecretName, maskSecrets, maskText } from '../../../src/observe/secrets.ts';

describe('isSecretName()', () => {
  test('looks at the last word of a name', () => {
    const secret = [
      'token',
      'TOKEN',
      'apiToken',
      'API_TOKEN',
      'private-key',
      'registry.password',
      'keys',
      'clientSecret',
      ...['auth', 'AUTH', 'X-Auth', 'proxyAuth', 'apikey', 'session_cookie'],
    ];
    const open = [
      'monkey',
      'keyring',
      'tokenizer',
      'passwordless',
      'sandbox',
      'K8S_POD_NAME',
      '',
      ...['mac', 'author', 'authority', 'bypass'],
      'keyPath',
    ];
    expect(secret.filter(name => !isSecretName(name))).toEqual([]);
    expect(open.filter(isSecretName)).toEqual([]);
  });
});

describe('maskSecrets()', () => {
  test('masks at any depth, whatever the value is, and does not change the original', () => {
    const config = {
      type: 'vpn',
      peers: [{ host: 'a', publicKey: 'k', inner: { presharedKey: { inner: 1 } } }],
      token: 'abc',
      password: '',
    };
    expect(maskSecrets(config)).toEqual({
      type: 'vpn',
      peers: [{ host: 'a', publicKey: '***', inner: { presharedKey: '***' as never } }],
      token: '***',
      password: '',
    });
    expect(config.token).toBe('abc');
  });

  test('masks the user of a URL in any value', () => {
    const result = { auth: 'abc', mirrors: ['https://me:hunter2@registry/v2', 'https://registry/a@b'] };
    expect(maskSecrets(result)).toEqual({
      auth: '***',
      mirrors: ['https://me:***@registry/v2', 'https://registry/a@b'],
    });
  });

  test('stops at a maximum depth', () => {
    let deep: unknown = 'secret';
    for (let i = 0; i < 10_000; i += 1) deep = { deep };
    expect(JSON.stringify(maskSecrets(deep))).not.toContain('secret');
  });
});

describe('maskText()', () => {
  test.each([
    ['Cannot log in: token=abc123, host=x', 'Cannot log in: token=***, host=x'],
    ['{"password":"a\\"b","user":"u"}', '{"password":"***","user":"u"}'],
    ['Authorization: Bearer abc.def', 'Authorization: ***'],
    ["apiKey: 'a b' next", "apiKey: '***' next"],
    ['say {\\"token\\": \\"a b\\"} now', 'say {\\"token\\": \\"***\\"} now'],
    ['K8S_POD_NAME=web;VPN_SECRET=xyz;A=b', 'K8S_POD_NAME=web;VPN_SECRET=***;A=b'],
    ['GET https://user:pass:word@host/x failed', 'GET https://user:***@host/x failed'],
    ['clone https://ghp_abc123@github.com/x', 'clone https://***@github.com/x'],
    ['{"url":"http://a:b@c","n":1}', '{"url":"http://a:***@c","n":1}'],
    ['ssh://git@host/x and https://host/a@b?c=d:e@f', 'ssh://git@host/x and https://host/a@b?c=d:e@f'],
    ['IgnoreUnknown=1;AUTH=xyz', 'IgnoreUnknown=1;AUTH=***'],
    ['{"auth": "dXNlcjpwYXNz"}', '{"auth": "***"}'],
    ['the key is under the mat', 'the key is under the mat'],
    ['Cannot find "monkey": none', 'Cannot find "monkey": none'],
  ])('%s', (text, masked) => {
    expect(maskText(text)).toBe(masked);
  });

  test('takes linear time for a long line', () => {
    expect(maskText('a'.repeat(1_000_000))).toHaveLength(1_000_000);
    expect(maskText('a://'.repeat(250_000))).toHaveLength(1_000_000);
    expect(maskText(`https://${'a'.repeat(1_000_000)}`)).toHaveLength(1_000_008);
    expect(maskText(`token="${'\\\\'.repeat(200_000)}`)).toStartWith('token=');
  });
});
