// Which options are taken, ignored and refused?
import { describe, expect, test } from 'bun:test';
import {
  backendOf,
  meansOf,
  PortmapConf,
  parsePortMappings,
  validatePortmapConf,
} from '../../../../plugins/portmap/config.ts';
import { CniError } from '../../../../src/cni/errors.ts';
import { decode } from '../../../../src/cni/json.ts';

function conf(options: object): PortmapConf {
  return decode(
    PortmapConf,
    { cniVersion: '1.1.0', name: 'podnet', type: 'portmap', ...options },
    'configuration',
  );
}

function codeOf(action: () => unknown): number | undefined {
  try {
    action();
    return undefined;
  } catch (thrown) {
    return thrown instanceof CniError ? thrown.code : -1;
  }
}

test('PortmapConf masquerades local sources by default', () => {
  expect(conf({})).toMatchObject({ snat: true, masqAll: false });
  expect(conf({ SNAT: false, masqall: true })).toMatchObject({ snat: false, masqAll: true });
});

describe('validatePortmapConf()', () => {
  test.each([
    [{}, undefined],
    [{ backend: 'nftables' }, undefined],
    [{ markMasqBit: 13 }, undefined],
    [{ conditionsV4: [], conditionsV6: [] }, undefined],
    [{ markMasqBit: 32 }, undefined],
    [{ backend: 'iptables' }, undefined],
    [{ backend: 'ipfw' }, 7],
    [{ externalSetMarkChain: 'KUBE-MARK-MASQ' }, undefined],
    [{ backend: 'nftables', externalSetMarkChain: 'KUBE-MARK-MASQ' }, 2],
    [{ externalSetMarkChain: 'KUBE-MARK-MASQ', markMasqBit: 13 }, 7],
    [{ externalSetMarkChain: 'KUBE MARK -j DROP' }, 7],
    [{ externalSetMarkChain: 'A-CHAIN-OF-MORE-THAN-28-CHARS' }, 7],
    [{ backend: 'iptables', markMasqBit: 31 }, undefined],
    [{ backend: 'iptables', markMasqBit: 32 }, 7],
    [{ backend: 'iptables', markMasqBit: -1 }, 7],
    [{ conditionsV4: ['!', '-s', '192.0.2.0/24'] }, undefined],
    [{ backend: 'nftables', conditionsV4: ['!', '-s', '192.0.2.0/24'] }, 2],
    [{ backend: 'iptables', conditionsV4: ['ip', 'saddr', '192.0.2.0/24'] }, 7],
    [{ conditionsV4: ['-m', 'comment', '--comment', 'two\nlines'] }, 7],
    [{ conditionsV4: ['-s', '192.0.2.1', '-j', 'ACCEPT'] }, 7],
    [{ conditionsV4: ['-s', '192.0.2.1', '--jump=ACCEPT'] }, 7],
    [{ conditionsV6: ['ip6', 'saddr', 'fd00::/8'] }, undefined],
    [{ conditionsV6: ['ip', 'saddr', '10.0.0.0/8'] }, 7],
    [{ conditionsV4: ['ip saddr 10.0.0.0/8 limit rate 1/second'] }, 7],
    [{ conditionsV4: ['', '-s'] }, undefined],
    [{ conditionsV4: ['-s', '192.0.2.1'], conditionsV6: ['ip6', 'saddr', 'fd00::/8'] }, 7],
  ])('%j is code %p', (options, code) => {
    expect(codeOf(() => validatePortmapConf(conf(options)))).toBe(code as never);
  });

  test('names key and value of what it refuses', () => {
    expect(() => validatePortmapConf(conf({ backend: 'pf' }))).toThrow('Cannot use "backend": "pf"');
  });
});

describe('backendOf()', () => {
  test.each([
    [{}, 'nftables'],
    [{ backend: '' }, 'nftables'],
    [{ backend: 'iptables' }, 'iptables'],
    [{ conditionsV6: ['ip6', 'saddr', 'fd00::/8'] }, 'nftables'],
    [{ conditionsV6: ['-s', 'fd00::/8'] }, 'iptables'],
    [{ externalSetMarkChain: 'KUBE-MARK-MASQ' }, 'iptables'],
    [{ backend: 'nftables', externalSetMarkChain: 'KUBE-MARK-MASQ' }, 'nftables'],
  ] as const)('of %j is %s', (options, backend) => {
    expect(backendOf(conf(options))).toBe(backend);
  });
});

describe('meansOf()', () => {
  const handle = (options: object) => meansOf(conf(options)).conditions[4];

  test('has one handle for the same conditions, however they are split', () => {
    expect(handle({})).toBe('');
    expect(handle({ conditionsV4: ['ip', 'saddr', '!=', '{10.0.0.0/8}'] })).toMatch(/^[0-9a-f]{15}$/);
    expect(handle({ conditionsV4: ['ip', 'saddr', '!=', '{10.0.0.0/8}'] })).toBe(
      handle({ conditionsV4: ['ip saddr != { 10.0.0.0/8 }'] }),
    );
    expect(handle({ conditionsV4: ['ip saddr 10.0.0.0/8'] })).not.toBe(
      handle({ conditionsV4: ['ip saddr 10.0.0.0/9'] }),
    );
    expect(handle({ conditionsV4: ['-s', '10.0.0.0/8'] })).toMatch(/^[0-9a-f]{15}$/);
  });

  test('contains what is masqueraded and by which packet filter', () => {
    expect(meansOf(conf({ masqAll: true }))).toMatchObject({ backend: 'nftables', masquerading: 'all' });
    expect(meansOf(conf({ backend: 'iptables' }))).toMatchObject({
      backend: 'iptables',
      masquerading: 'local',
    });
    expect(meansOf(conf({ snat: false, masqAll: true })).masquerading).toBe('none');
  });
});

describe('parsePortMappings()', () => {
  const mappings = (portMappings: unknown) => parsePortMappings(conf({ runtimeConfig: { portMappings } }));

  test('is empty when the runtime sent none', () => {
    expect(parsePortMappings(conf({}))).toEqual([]);
    expect(parsePortMappings(conf({ runtimeConfig: {} }))).toEqual([]);
    expect(mappings(null)).toEqual([]);
    expect(mappings([])).toEqual([]);
  });

  test('accepts keys in any letter case, as Go does', () => {
    const mapping = { HostPort: 8080, ContainerPort: 80, Protocol: 'tcp', HostIP: '' };
    expect(mappings([mapping])).toEqual([{ hostPort: 8080, containerPort: 80, protocol: 'tcp', hostIP: '' }]);
  });

  test.each([
    [{ hostPort: 0, containerPort: 80 }, '"[0].hostPort" must be at least 1, found 0'],
    [{ hostPort: 65536, containerPort: 80 }, '"[0].hostPort" must be at most 65535, found 65536'],
    [{ hostPort: 1 }, '"[0].containerPort"'],
    [{ hostPort: '80', containerPort: 80 }, '"[0].hostPort"'],
  ])('refuses %j', (mapping, words) => {
    expect(() => mappings([mapping])).toThrow(words);
    expect(codeOf(() => mappings([mapping]))).toBe(7);
  });

  test('is not called when a configuration is read: DEL works with invalid mappings', () => {
    expect(() => conf({ runtimeConfig: { portMappings: 'nonsense' } })).not.toThrow();
  });
});
