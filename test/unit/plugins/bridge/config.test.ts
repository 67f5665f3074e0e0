// Are contradictory and unsupported bridge configurations refused before anything is touched?
import { describe, expect, test } from 'bun:test';
import { BridgeConf, validateBridgeConf } from '../../../../plugins/bridge/config.ts';
import { decode } from '../../../../src/cni/json.ts';

function validate(conf: object): void {
  validateBridgeConf(decode(BridgeConf, { name: 'n', type: 'bridge', ...conf }, 'test'));
}

describe('validateBridgeConf()', () => {
  test.each([
    [{ bridge: 'a/b' }, 7, '"bridge" is "a/b"'],
    [{ bridge: 'sixteen-bytes-xx' }, 7, 'longer than 15 bytes'],
    [{ mtu: -1 }, 7, '"mtu" is -1'],
    [{ mtu: 70000 }, 7, '"mtu" is 70000'],
    [{ hairpinMode: true, promiscMode: true }, 7, 'exclude each other'],
    [{ disableContainerInterface: true, ipam: { type: 'static' } }, 7, '"disableContainerInterface"'],
    [{ vlan: 7 }, 2, '"vlan": 7'],
    [{ vlanTrunk: [{ id: 3 }] }, 2, '"vlanTrunk": [{"id":3}]'],
    [{ macspoofchk: true }, 2, '"macspoofchk": true'],
    [{ ipMasqBackend: 'iptables' }, 2, '"ipMasqBackend": "iptables"'],
    [{ ipMasqBackend: '' }, 7, '"ipMasqBackend"'],
    [{ vlan: 5000 }, 7, 'must be at most 4094'],
  ])('refuses %j with code %d', (conf, code, words) => {
    let thrown: unknown;
    try {
      validate(conf);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toMatchObject({ code, message: expect.stringContaining(words) });
  });

  test('accepts what podman writes, keys in any letter case', () => {
    validate({
      BRIDGE: 'cni-podman0',
      isgateway: true,
      ipMasq: true,
      hairpinMode: true,
      ipMasqBackend: null,
    });
  });
});
