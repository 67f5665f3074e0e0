import { describe, expect, test } from 'bun:test';
import { refuseExhausted, refuseReadOnly } from '../../../../plugins/host-local/availability.ts';
import { parseRangeSets } from '../../../../plugins/host-local/range.ts';
import type { CniError } from '../../../../src/cni/errors.ts';

function codeOf(work: () => void): number {
  try {
    work();
  } catch (thrown) {
    return (thrown as CniError).code;
  }
  return 0;
}

describe('refuseExhausted()', () => {
  const [set] = parseRangeSets([[{ subnet: '10.0.0.0/30' }]]);
  if (set === undefined) throw new Error('no set');

  test('counts neither the gateway nor addresses of other sets', () => {
    expect(() => refuseExhausted(set, ['10.0.0.1', '10.0.1.2', 'fd00::1'])).not.toThrow();
  });
  test('answers 50 when nothing is free', () => {
    expect(codeOf(() => refuseExhausted(set, ['10.0.0.2']))).toBe(50);
    expect(() => refuseExhausted(set, ['10.0.0.2'])).toThrow('(1 of 1 addresses in use)');
  });
});

describe('refuseReadOnly()', () => {
  test('looks at what exists of the path', () => {
    expect(() => refuseReadOnly('/tmp/not/yet/there')).not.toThrow();
    expect(codeOf(() => refuseReadOnly('/etc/hostname/leases'))).toBe(50);
  });
});
