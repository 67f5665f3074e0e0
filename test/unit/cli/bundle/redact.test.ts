// Is every secret masked in a report, wherever it stands, and is everything else kept?
import { describe, expect, test } from 'bun:test';
import { redact, redactText } from '../../../../src/cli/bundle/redact.ts';

const SECRET = 'hunter2-9f8e7d';
const TOKEN = 'eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYXRlbmEifQ.c2lnbmF0dXJl';
const base64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64');

describe('redact() masks', () => {
  test.each<[string, unknown]>([
    ['a key that ends as a secret', { apiToken: SECRET }],
    ['a key with a secret word in it', { tokenForRegistry: SECRET }],
    ['data of a kubeconfig', { user: { 'client-key-data': SECRET, 'certificate-authority-data': SECRET } }],
    ['an object below a secret key', { credentials: { user: SECRET } }],
    ['an environment', { env: { HARMLESS: SECRET } }],
    ['an environment in pairs', { environment: [`HARMLESS=${SECRET}`] }],
    ['an environment of a pod', { env: [{ name: 'HARMLESS', value: SECRET }] }],
    ['a named value', { name: 'registry-password', value: SECRET }],
    ['a pair, as records keep arguments', [['REGISTRY_PASSWORD', SECRET]]],
    ['options of a command line', { command: ['--user', 'x', '--password', SECRET, '-v'] }],
    ['an option in a text', { note: `failed: tool --token ${SECRET} --verbose` }],
    ['keys of other tools', { psk: SECRET, snmpCommunity: SECRET, private_key_pem: SECRET }],
    ['arguments in a string', { args: `IgnoreUnknown=1;API_TOKEN=${SECRET}` }],
    ['a configuration in a string', { config: JSON.stringify({ password: SECRET }) }],
    ['a configuration in base64', { config: base64({ plugins: [{ password: SECRET }] }) }],
    ['a web token', { note: `it said ${TOKEN}` }],
    ['a private key', { note: `-----BEGIN PRIVATE KEY-----\n${SECRET}\n-----END PRIVATE KEY-----` }],
    ['the password of a URL', { url: `https://user:${SECRET}@host/` }],
  ])('%s', (_, value) => {
    const text = JSON.stringify(redact(value));
    expect(text).not.toContain(SECRET);
    expect(text).not.toContain(TOKEN);
    expect(text).toContain('***');
    expect(redactText(JSON.stringify(value))).not.toContain(SECRET);
  });
});

test('redact() keeps the rest', () => {
  const value = {
    name: 'podnet',
    plugins: [{ type: 'bridge', mtu: 1400, ipam: { ranges: [[]] } }],
    on: true,
  };
  expect(redact(value)).toEqual(value);
  expect(redact({ token: '', password: null })).toEqual({ token: '', password: null });
});

describe('redactText()', () => {
  test('masks line by line, and keeps what is no JSON', () => {
    const text = `first\n{"token":"${SECRET}","at":1}\nAuthorization: Bearer ${SECRET}\nlast\n`;
    expect(redactText(text)).toBe('first\n{"token":"***","at":1}\nAuthorization: ***\nlast\n');
  });

  test('masks broken JSON', () => {
    expect(redactText(`{ "password": "${SECRET}", "mtu": }`)).not.toContain(SECRET);
  });

  test('keeps only the names of Environment= in a unit', () => {
    const unit = `[Service]\nEnvironment="A=${SECRET} x" B=${SECRET}\nExecStart=/opt/cni/bin/catena daemon\n`;
    expect(redactText(unit)).toBe(
      '[Service]\nEnvironment=A=*** B=***\nExecStart=/opt/cni/bin/catena daemon\n',
    );
  });

  test('masks keys over several lines', () => {
    const pem = `a\n-----BEGIN RSA PRIVATE KEY-----\n${SECRET}\n${SECRET}\n-----END RSA PRIVATE KEY-----\nb`;
    expect(redactText(pem)).toBe('a\n***\nb');
  });
});
