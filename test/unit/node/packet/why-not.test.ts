import { describe, expect, test } from 'bun:test';
import type { NodeModel } from '../../../../src/node/model.ts';
import { parseFrom, parseTo } from '../../../../src/node/packet/why-not.ts';

const attachment = { state: 'attached', containerId: 'c1', addresses: ['10.22.0.7/16', 'fd00::7/64'] };
const node = { attachments: [attachment] } as unknown as NodeModel;
const find = (given: string) => `id of ${given}`;

describe('parseTo', () => {
  test.each([
    [':8080', { kind: 'node', port: 8080, protocol: 'tcp' }],
    ['8080', { kind: 'node', port: 8080, protocol: 'tcp' }],
    ['53/udp', { kind: 'node', port: 53, protocol: 'udp' }],
    ['node:8080', { kind: 'node', port: 8080, protocol: 'tcp' }],
    [':53/udp', { kind: 'node', port: 53, protocol: 'udp' }],
    ['db:5432', { kind: 'container', containerId: 'id of db', port: 5432 }],
    ['default/db:5432', { kind: 'container', containerId: 'id of default/db', port: 5432 }],
    ['10.22.0.7:80', { kind: 'container', containerId: 'c1', address: '10.22.0.7' }],
    ['[FD00:0::7]:80', { kind: 'container', containerId: 'c1', address: 'fd00::7' }],
    ['1.1.1.1:443', { kind: 'outside', address: '1.1.1.1', port: 443 }],
  ])('%s', (text, expected) => {
    expect(parseTo(text, 4, node, find)).toMatchObject({ ...expected, family: 4 } as object);
  });

  test.each(['db', '0', ':0', ':65536', 'fd00::7:80', '[db]:80', ':80/sctp', ':'])('"%s" is none', text => {
    expect(parseTo(text, 4, node, find)).toBeUndefined();
  });
});

test.each([
  ['outside', { kind: 'outside' }],
  ['node', { kind: 'node' }],
  ['10.22.0.7', { kind: 'container', containerId: 'c1' }],
  ['192.0.2.1', { kind: 'outside', address: '192.0.2.1' }],
  ['web', { kind: 'container', containerId: 'id of web' }],
] as const)('parseFrom: %s', (text, expected) => {
  expect(parseFrom(text, node, find)).toEqual(expected);
});
