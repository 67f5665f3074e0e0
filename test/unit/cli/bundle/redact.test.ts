// Is every secret masked in a report, wherever it stands, and is everything else kept?

import { describe, expect, test } from 'bun:test';
import { findNames, openPseudonyms, redact, redactText } from '../../../../src/cli/bundle/redact.ts';

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

const open = () =>
  openPseudonyms([
    { kind: 'pod', names: ['web', 'web-2', 'web'] },
    { kind: 'host', names: ['node7.example.org', ''] },
  ]);

test('names become words of their kind, also inside of longer texts', () => {
  const hide = open();
  expect(hide('web and web-2 on node7.example.org; K8S_POD_NAME=web')).toBe(
    'pod-1 and pod-2 on host-1; K8S_POD_NAME=pod-1',
  );
  expect(hide('webserver, my-web')).toBe('webserver, my-web');
});

test('addresses are the same word in every text, however they are written', () => {
  const hide = open();
  expect(hide('10.1.0.2/24 via 10.1.0.1, 10.1.0.2:8080')).toBe('ipv4-1/24 via ipv4-2, ipv4-1:8080');
  expect(hide('fd00::0:2/64')).toBe('ipv6-3/64');
  expect(hide('fd00::2 and 10.1.0.1')).toBe('ipv6-3 and ipv4-2');
  expect(hide('02:42:0A:01:00:02, 02:42:0a:01:00:02')).toBe('mac-4, mac-4');
});

test('what is no address is kept', () => {
  const plain =
    '0.0.0.0/0, ::/0, 127.0.0.1, ::1, 00:00:00:00:00:00, 2026-11-24T03:55:46Z, 03:55:46, inet::filter, 1.2.3';
  expect(open()(plain)).toBe(plain);
});

test('names are found in whatever form the files of a report have them', () => {
  const texts = [
    'K8S_POD_NAMESPACE=shop;K8S_POD_NAME=frontend-1;K8S_POD_UID=7',
    '{"time":"2026","verb":"DEL","podNamespace":"bygone","podName":"frontend-2"}\n',
    '"args": [\n  [\n    "K8S_POD_NAME",\n    "frontend-3"\n  ]\n]',
    JSON.stringify({ inner: JSON.stringify({ podName: 'frontend-4', containerName: 'web' }) }),
    'level=info pod_name=frontend-5 container_id=abc',
    '{"podName": null}',
  ];
  const found = Object.fromEntries(findNames(texts).map(({ kind, names }) => [kind, [...names].sort()]));
  expect(found).toMatchObject({ namespace: ['bygone', 'shop'], container: ['web'] });
  expect(found.pod).toEqual(expect.arrayContaining([1, 2, 3, 4, 5].map(i => `frontend-${i}`)));
});
