import { describe, expect, test } from 'bun:test';
import { refuseExhausted, refuseReadOnly } from '../../../../plugins/host-local/availability.ts';
import { parseRangeSets } from '../../../../plugins/host-local/range.ts';

describe('refuseExhausted()', () => {
  const [set] = parseRangeSets([[{ subnet: '10.0.0.0/30' }]]);
  if (set === undefined) throw new Error('no set');

  test('counts neither the gateway nor addresses of other sets', () => {
    expect(() => refuseExhausted(set, ['10.0.0.1', '10.0.1.2', 'fd00::1'])).not.toThrow();
  });
  test('answers 50 when nothing is free', () => {
    expect(() => refuseExhausted(set, ['10.0.0.2'])).toThrow(expect.objectContaining({ code: 50 }));
    expect(() => refuseExhausted(set, ['10.0.0.2'])).toThrow('(1 of 1 addresses in use)');
  });
});

describe('refuseReadOnly()', () => {
  test('looks at what exists of the path', () => {
    expect(() => refuseReadOnly('/tmp/not/yet/there')).not.toThrow();
    expect(() => refuseReadOnly('/etc/hostname/leases')).toThrow(expect.objectContaining({ code: 50 }));
  });
});
