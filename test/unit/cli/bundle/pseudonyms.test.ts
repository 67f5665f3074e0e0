// Are names and addresses replaced in all spellings, and the same by the same?
import { expect, test } from 'bun:test';
import { findNames, openPseudonyms } from '../../../../src/cli/bundle/pseudonyms.ts';

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
