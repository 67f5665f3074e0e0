// Are contradictory bridge configurations refused before anything is touched?
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
    [{ mtu: 67 }, 7, '"mtu" is 67'],
    [{ mtu: 70000 }, 7, '"mtu" is 70000'],
    [{ hairpinMode: true, promiscMode: true }, 7, 'exclude each other'],
    [{ disableContainerInterface: true, ipam: { type: 'static' } }, 7, '"disableContainerInterface"'],
    [{ ipMasqBackend: '' }, 7, '"ipMasqBackend" is ""'],
    [{ ipMasqBackend: 'ebtables' }, 7, '"ipMasqBackend" is "ebtables"'],
    [{ vlan: -100 }, 7, '"vlan" is -100, expected 1 to 4094'],
    [{ vlan: 5000 }, 7, '"vlan" is 5000, expected 1 to 4094'],
    [{ vlanTrunk: [{ id: 0 }] }, 7, '"vlanTrunk" holds {"id":0}'],
    [{ vlanTrunk: [{ id: 4095 }] }, 7, 'expected 1 to 4094'],
    [{ vlanTrunk: [{ minID: 5 }] }, 7, '"minID" and "maxID" go together'],
    [{ vlanTrunk: [{ maxID: 5 }] }, 7, '"minID" and "maxID" go together'],
    [{ vlanTrunk: [{ minID: -1, maxID: 5 }] }, 7, 'expected 1 to 4094'],
    [{ vlanTrunk: [{ minID: 1, maxID: 5000 }] }, 7, 'expected 1 to 4094'],
    [{ vlanTrunk: [{ id: 7 }, { minID: 9, maxID: 8 }] }, 7, '"minID" is greater than "maxID"'],
    [{ bridge: 'bridge-of-pods', vlan: 100, isGateway: true }, 7, '"bridge-of-pods.100"'],
  ])('refuses %j with code %d', (conf, code, words) => {
    let thrown: unknown;
    try {
      validate(conf);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toMatchObject({ code, message: expect.stringContaining(words) });
  });

  test.each([
    [{ vlan: 0 }],
    [{ vlan: 4094, vlanTrunk: [{ id: 1 }, { minID: 100, maxID: 100, id: 7 }], preserveDefaultVlan: true }],
    [{ vlanTrunk: [] }],
    [{ bridge: 'bridge-of-pods', vlan: 100 }],
    [{ macspoofchk: true, ipMasqBackend: 'iptables' }],
    [{ mtu: 9000, disableContainerInterface: true, ipam: {} }],
  ])('accepts %j', conf => {
    expect(() => validate(conf)).not.toThrow();
  });

  test('accepts the keys that podman writes, in any letter case', () => {
    validate({
      BRIDGE: 'cni-podman0',
      isgateway: true,
      ipMasq: true,
      hairpinMode: true,
      ipMasqBackend: null,
    });
  });
});
