import { describe, expect, test } from 'bun:test';
import { PtpConf, validatePtpConf } from '../../../../plugins/ptp/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const conf = (more: object) => decode(PtpConf, { type: 'ptp', ipam: { type: 'static' }, ...more }, 'conf');

describe('validatePtpConf()', () => {
  test('names the IPAM plugin', () => {
    expect(validatePtpConf(conf({ mtu: 1400 }))).toBe('static');
  });

  test.each([{ mtu: -1 }, { mtu: 67 }, { mtu: 65536 }, { ipam: {} }, { ipam: null }, { ipMasqBackend: '' }])(
    'refuses %j with code 7',
    more => {
      expect(() => validatePtpConf(conf(more))).toThrow(expect.objectContaining({ code: 7 }));
    },
  );
});
