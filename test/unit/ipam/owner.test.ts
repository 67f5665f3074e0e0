import { describe, expect, test } from 'bun:test';
import { parseOwner, renderOwner } from '../../../src/ipam/owner.ts';

describe('renderOwner()', () => {
  test('writes the bytes of the reference', () => {
    expect(renderOwner({ containerId: 'dummy', ifname: 'eth0' })).toBe('dummy\r\neth0');
    expect(renderOwner({ containerId: ' dummy\n ', ifname: 'eth0' })).toBe('dummy\r\neth0');
  });
});

describe('parseOwner()', () => {
  test('reads current and older leases, and ignores surrounding white space', () => {
    expect(parseOwner('dummy\r\neth0')).toEqual({ containerId: 'dummy', ifname: 'eth0' });
    expect(parseOwner(' dummy\r\neth0\n')).toEqual({ containerId: 'dummy', ifname: 'eth0' });
    expect(parseOwner('dummy\n')).toEqual({ containerId: 'dummy' });
  });

  test('rejects empty and foreign text', () => {
    expect(['', '\n', 'dummy\neth0', 'a\r\nb\r\nc', '{"id": 1}'].map(parseOwner)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });
});
