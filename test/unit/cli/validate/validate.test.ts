import { afterEach, beforeEach, describe, expect, spyOn, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { KNOWN_TYPES, loadAbout } from '../../../../plugins/registry.ts';
import { type Executables, NO_EXECUTABLES } from '../../../../src/cli/validate/executables.ts';
import type { Finding } from '../../../../src/cli/validate/finding.ts';
import { validatePath } from '../../../../src/cli/validate/validate.ts';
import type { PluginCatalog } from '../../../../src/cni/plugin-about.ts';

const CATALOG: PluginCatalog = {
  types: KNOWN_TYPES,
  find: loadAbout,
  schemas: async () => ({}),
};

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-validate-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

function write(name: string, content: unknown): string {
  const file = path.join(dir, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
  return file;
}

/** `line:column severity rule message` of each finding. */
async function validate(target: string, executables: Executables = NO_EXECUTABLES): Promise<string[]> {
  const { findings } = await validatePath(target, CATALOG, executables);
  return findings.map(({ line, column, severity, rule, message }) => {
    return `${line}:${column} ${severity} ${rule} ${message}`;
  });
}

const list = (...plugins: unknown[]) => ({ cniVersion: '1.1.0', name: 'podnet', plugins });
const validateList = (...plugins: unknown[]) => validate(write('10.conflist', list(...plugins)));
const rules = (findings: readonly string[]) => findings.map(line => line.split(' ').slice(1, 3).join(' '));

const BRIDGE = { type: 'bridge', ipam: { type: 'host-local', subnet: '10.1.0.0/24' } };

test('a name of a network that makes comments of nft too long is a warning', async () => {
  const named = (length: number) =>
    validate(write('10.conflist', { ...list({ type: 'loopback' }), name: 'n'.repeat(length) }));
  expect(await named(70)).toEqual([]);
  expect(await named(71)).toEqual([
    expect.stringContaining('warning shape "name" has 71 characters: with more than 70, nft'),
  ]);
});

describe('the name of the file', () => {
  const single = { cniVersion: '1.0.0', name: 'n', type: 'loopback' };

  test.each([
    [
      'a.conflist',
      single,
      '1:34 error file-name no runtime loads this file: it is a single plugin configuration, not a list; name',
    ],
    [
      'a.conf',
      list({ type: 'loopback' }),
      '1:39 error file-name no runtime loads this file: it is a list, which belongs in a',
    ],
    [
      'a.json',
      list({ type: 'loopback' }),
      '1:39 error file-name no runtime loads this file: it is a list, which belongs in a',
    ],
  ])(
    '%s with a configuration of the other kind is an error, as it is for a runtime',
    async (name, conf, line) => {
      expect(await validate(write(name, conf))).toEqual([expect.stringContaining(line)]);
    },
  );

  test('is not reported when it fits the content, or where runtimes do not look', async () => {
    for (const name of ['a.conf', 'a.json', 'a.txt']) expect(await validate(write(name, single))).toEqual([]);
    expect(await validate(write('list.txt', list({ type: 'loopback' })))).toEqual([]);
  });
});

describe('a list', () => {
  test('has every error reported with line and column', async () => {
    const file = write(
      '10.conflist',
      `{
  "cniVersion": "1.1.0",
  "name": "-podnet",
  "disablecheck": true,
  "disableGC": "perhaps",
  "plugins": [
    { "type": "bridge", "mtu": "1400",
      "bridg": "br0",
      "ipam": { "type": "host-local", "subnett": "10.0.0.0/8" } },
    { "typ": "portmap" },
    7
  ]
}`,
    );
    expect(await validate(file)).toEqual([
      '3:11 error shape "name" must start with a letter or digit and contain only letters, digits, "_", "." and "-", found "-podnet"',
      '4:3 warning unknown-key key "disablecheck" is not known; did you mean "disableCheck"?',
      '5:16 error shape "disableGC" must be true or false, found "perhaps"',
      '7:32 error shape "mtu" must be a number of bytes or "auto", found "1400"',
      '8:7 warning unknown-key key "bridg" is not known; did you mean "bridge"?',
      expect.stringMatching(/^9:15 warning capability "host-local" has nothing to do/),
      '9:39 warning unknown-key key "subnett" is not known; did you mean "subnet"?',
      '10:5 error shape "type" must be of type string, it is missing; is "typ" a typo?',
      '11:5 error shape a plugin configuration is a JSON object',
    ]);
  });

  test.each([
    ['{"name": 1', '1:11 error syntax not JSON: expected "," or "}", found the end of the text'],
    ['[]', '1:1 error shape a network configuration is a JSON object'],
    [
      '{"cniVersion":"1.1.0","name":"a","plugins":[]}',
      '1:44 error shape "plugins" must contain at least one plugin',
    ],
    ['{"cniVersion":"1.1.0","name":"a"}', '1:1 error shape Cannot use the list: it has no "plugins"'],
    [
      '{"cniVersion":"9.0.0","name":"a","type":"x"}',
      '1:15 error version Cannot use "cniVersion" of the list',
    ],
    [
      '{"cniVersions":["1.x"],"name":"a","plugins":[{"type":"x"}]}',
      '1:17 error shape Cannot use CNI version "1.x"',
    ],
  ])('%s', async (text, expected) => {
    const findings = await validate(write(text.includes('"plugins"') ? '10.conflist' : '10.conf', text));
    expect(findings).toHaveLength(1);
    expect(findings[0]).toStartWith(expected);
  });

  test('with a repeated key and without a version gets warnings', async () => {
    const text = '{"name":"a","plugins":[{"type":"x","a":1,\n"a":2}]}';
    expect(await validate(write('10.conflist', text))).toEqual([
      '1:1 warning version "cniVersion" is missing: assuming 0.1.0, which has neither CHECK nor GC',
      '2:1 warning repeated-key duplicate key "a": the last one is used',
    ]);
  });

  test('that cannot be read is reported', async () => {
    fs.symlinkSync('/nonexistent', path.join(dir, '10.conflist'));
    expect(rules(await validate(dir))).toEqual(['error unreadable']);
    await expect(validate('/nonexistent')).rejects.toThrow('Cannot read "/nonexistent": ENOENT');
  });

  test('that is a single configuration is checked like a plugin', async () => {
    const text = '{"cniVersion":"1.0.0","name":"a","type":"bridge","mtu":-5}';
    expect(await validate(write('10.conf', text))).toEqual([
      '1:56 error option Cannot use bridge configuration: "mtu" is -5, expected 68 to 65535, 0 for the default, or "auto"',
    ]);
  });

  test.each([
    [
      '{ "subnet": "10.22.0.0/16",\n"rangeStart": "10.23.0.1" }',
      '3:15 error option Cannot use range set 0: "rangeStart"',
    ],
    ['{\n"subnet": "10.22.0.1/16" }', '3:11 error option Cannot use range set 0:'],
    [
      '{ "subnet": "10.22.0.0/16" }], [\n{ "subnet": "10.22.4.0/24" }',
      '3:13 error option Cannot use range sets 0 and 1: "subnet" 10.22.4.0/24',
    ],
  ])('has a mistake in a range at its place: %s', async (ranges, expected) => {
    const text = `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge",\n"ipam":{"type":"host-local","ranges":[[${ranges}]]}}]}`;
    const [first] = await validate(write('10.conflist', text));
    expect(first).toStartWith(expected);
  });

  test('includes the files beside it', async () => {
    const file = write('10.conflist', list(BRIDGE));
    write('podnet/10-tuning.conf', '{"type": "tuning",\n  "mtuu": 1}');
    expect(await validate(file)).toEqual([
      '2:3 warning unknown-key key "mtuu" is not known; did you mean "mtu"?',
    ]);
    write('10.conflist', { ...list(BRIDGE), loadOnlyInlinedPlugins: true });
    expect(await validate(file)).toEqual([]);
  });
});

describe('a plugin', () => {
  test('matches keys in any letter case, and null counts as absent', async () => {
    expect(await validateList({ Type: 'bridge', MTU: 1400, isgateway: true, bridge: null })).toEqual([]);
  });

  test.each([
    [
      'bandwidth',
      { ingressRate: 'fast', ingressBurst: 1 },
      '"ingressRate": "fast": expected a number of bits, or a string such as "10Mbit"',
    ],
    ['bandwidth', { ingressBurst: 100 }, 'if burst is set, rate must also be set'],
    ['tuning', { sysctl: { 'kernel.hostname': 'x' } }, 'only parameters below "net" can be set'],
    ['tuning', { mac: 'ff' }, 'ff'],
    ['portmap', { backend: 'ipvs' }, '"backend" must be one of "nftables", "iptables", found "ipvs"'],
    [
      'bridge',
      { hairpinMode: true, promiscMode: true },
      '"hairpinMode" and "promiscMode" exclude each other',
    ],
    ['bridge', { ipam: { type: 'host-local', subnet: '10.1.0.1/24' } }, '10.1.0.1/24 has host bits set'],
    [
      'bridge',
      { ipam: { type: 'host-local', ranges: [[{}]] } },
      '"ipam.ranges[0][0].subnet" must be of type',
    ],
  ])('%s refuses %j', async (type, options, expected) => {
    const first = type === 'bridge' ? [] : [BRIDGE];
    const conf = { type, ...options, capabilities: type === 'portmap' ? { portMappings: true } : {} };
    const findings = await validateList(...first, conf);
    expect(findings).toHaveLength(1);
    expect(findings[0]).toContain(expected);
    expect(rules(findings)[0]).toMatch(/^error (shape|option)$/);
  });

  test('of a third party is checked for the common keys only', async () => {
    const conf = {
      type: 'ovs',
      master: 5,
      ipam: { type: 'calico-ipam', range: 5 },
      dns: { nameserver: [] },
    };
    expect(await validateList(conf)).toEqual([
      expect.stringMatching(/warning unknown-key key "nameserver" is not known; did you mean "nameservers"/),
    ]);
    expect(rules(await validateList({ type: 'ovs', ipam: 'dhcp' }))).toEqual(['error shape']);
  });

  test('of a third party under one of our names may define options differently', async () => {
    const foreign: Executables = { isForeign: () => true, judge: async () => [] };
    const file = write(
      '10.conflist',
      list({ type: 'bridge', mtu: 'x', hairpinMode: true, promiscMode: true }),
    );
    expect(rules(await validate(file, foreign))).toEqual(['warning shape']);
  });

  test('has no keys that only the runtime sets', async () => {
    const findings = await validateList({ ...BRIDGE, runtimeConfig: { mac: 'x' }, prevResult: {} });
    expect(rules(findings)).toEqual(['warning reserved-key', 'warning reserved-key']);
  });
});

describe('the order of plugins', () => {
  const PORTMAP = { type: 'portmap', capabilities: { portMappings: true } };

  test.each([
    ['a meta plugin first', [PORTMAP, BRIDGE], ['error order']],
    ['a meta plugin alone', [{ type: 'tuning' }], ['error order']],
    ['one of whose two entries the second undoes', [BRIDGE, PORTMAP, PORTMAP], ['warning order']],
    ['one that may be there twice', [BRIDGE, { type: 'tuning' }, { type: 'tuning' }], []],
    ['a main plugin later', [BRIDGE, PORTMAP, { type: 'bridge' }], ['warning order']],
    [
      'an IPAM plugin in the list',
      [BRIDGE, { type: 'host-local', ipam: { subnet: '10.2.0.0/24' } }],
      ['warning order'],
    ],
    ['a meta plugin after a foreign one', [{ type: 'ovs' }, PORTMAP], []],
    ['as it should be', [BRIDGE, PORTMAP, { type: 'tuning' }], []],
  ])('%s', async (_, plugins, expected) => {
    expect(rules(await validateList(...plugins))).toEqual(expected);
  });

  test('is reported with the plugin after which one belongs', async () => {
    const [finding] = await validateList(PORTMAP, BRIDGE);
    expect(finding).toEndWith('put it after "bridge"');
  });
});

describe('a hardware address that tuning sets', () => {
  const mac = '02:00:00:00:00:01';
  const takes = { capabilities: { mac: true } };
  const guard = { ...BRIDGE, macspoofchk: true };
  const warned = async (...plugins: unknown[]) =>
    (await validateList(...plugins)).filter(one => one.includes('macspoofchk'));

  test('is warned of behind a bridge that lets through only its own', async () => {
    expect(await warned(guard, { type: 'tuning', mac })).toEqual([
      expect.stringContaining(
        'warning option "macspoofchk" of "bridge" drops what the container sends from an address that "tuning" sets later',
      ),
    ]);
    expect(await warned(guard, { type: 'tuning', ...takes })).toHaveLength(1);
  });

  test('is nothing to warn of if the bridge sets the same, or drops nothing', async () => {
    expect(await warned({ ...guard, ...takes }, { type: 'tuning', ...takes })).toEqual([]);
    expect(await warned(BRIDGE, { type: 'tuning', mac })).toEqual([]);
    expect(await warned(guard, { type: 'tuning', mac: '', mtu: 1400 })).toEqual([]);
  });
});

describe('capabilities', () => {
  const findings = async (conf: object) =>
    (await validateList(BRIDGE, conf)).map(one => one.slice(one.indexOf(' ') + 1));

  test('are missing from a plugin that has nothing to do without one', async () => {
    const advice = 'declare "capabilities": {"portMappings": true}, or configure it here';
    expect(await findings({ type: 'portmap' })).toEqual([
      `warning capability "portmap" has nothing to do: ${advice}`,
    ]);
    expect(await findings({ type: 'portmap', capabilities: { portMappings: false } })).toEqual([]);
    expect(await findings({ type: 'bandwidth', egressRate: 8000, egressBurst: 8000 })).toEqual([]);
    expect(rules(await validateList({ type: 'bridge', ipam: { type: 'host-local' } }))).toEqual([
      'warning capability',
    ]);
  });

  test('unknown to the plugin are reported', async () => {
    expect(
      await findings({ type: 'portmap', capabilities: { portMapping: true, portMappings: true } }),
    ).toEqual([
      'warning capability "portmap" does not know capability "portMapping"; did you mean "portMappings"?',
    ]);
    const bridge = { ...BRIDGE, capabilities: { ips: true, mac: true, bandwidth: true } };
    expect((await validateList(bridge)).map(one => one.split('capability ').slice(1).join(''))).toEqual([
      'neither "bridge" nor "host-local" knows "bandwidth"',
    ]);
  });

  test('of a third-party plugin are reported only if no runtime offers them', async () => {
    expect(
      await findings({ type: 'x', capabilities: { portMaping: true, deviceID: true, own: true } }),
    ).toEqual(['warning capability no runtime passes "portMaping"; did you mean "portMappings"?']);
    const bridge = { type: 'bridge', ipam: { type: 'calico-ipam' }, capabilities: { ips: true, mac: true } };
    expect(await validateList(bridge)).toEqual([]);
  });
});

describe('a directory', () => {
  const network = (name: string, ipam: object) => ({
    cniVersion: '1.1.0',
    name,
    plugins: [{ type: 'bridge', ipam: { type: 'host-local', ...ipam } }],
  });
  const inFile = ({ file, rule, severity, message }: Finding) =>
    `${path.basename(file)} ${severity} ${rule} ${message.replaceAll(dir, '')}`;
  const found = async () => (await validatePath(dir, CATALOG, NO_EXECUTABLES)).findings.map(inFile);

  test('contributes only files that a runtime reads', async () => {
    write('10.conflist', list(BRIDGE));
    write('20.conflist.bak', '{');
    write('sub.conflist/x', '{');
    expect(await validatePath(dir, CATALOG, NO_EXECUTABLES)).toEqual({ files: 1, findings: [] });
  });

  test('with a name in two files never uses the second', async () => {
    write('10.conflist', network('podnet', { subnet: '10.1.0.0/24' }));
    write('20.conflist', network('podnet', { subnet: '10.1.0.0/24' }));
    expect(await found()).toEqual([
      '20.conflist error duplicate-name network "podnet" is also defined in "/10.conflist", which is read first: this file is never used',
    ]);
  });

  test('prefers a list to a single configuration in some runtimes, the first file in others', async () => {
    write('10.conf', { cniVersion: '1.1.0', name: 'podnet', type: 'bridge' });
    write('20.conflist', network('podnet', { subnet: '10.1.0.0/24' }));
    expect(await found()).toEqual([
      '10.conf error duplicate-name network "podnet" is also defined in "/20.conflist": by network name the other file is found; runtimes that select by file name use this one',
    ]);
  });

  test.each([
    ['the same subnet', { subnet: '10.1.0.0/24' }, { subnet: '10.1.0.0/24' }, true],
    ['one inside the other', { subnet: '10.0.0.0/8' }, { ranges: [[{ subnet: '10.1.0.0/24' }]] }, true],
    ['IPv6', { ranges: [[{ subnet: 'fd00::/48' }]] }, { subnet: 'fd00:0:0:1::/64' }, true],
    [
      'each its own part of a subnet',
      { subnet: '10.1.0.0/24', rangeEnd: '10.1.0.99' },
      { subnet: '10.1.0.0/24', rangeStart: '10.1.0.100' },
      false,
    ],
    [
      'parts of a subnet that overlap',
      { subnet: '10.1.0.0/24', rangeEnd: '10.1.0.100' },
      { subnet: '10.1.0.0/24', rangeStart: '10.1.0.100' },
      true,
    ],
    ['neighbours', { subnet: '10.1.0.0/24' }, { subnet: '10.1.1.0/24' }, false],
    ['another family', { subnet: '10.1.0.0/24' }, { subnet: 'fd00::/64' }, false],
  ])('with subnets of two networks: %s', async (_, a, b, overlaps) => {
    write('10.conflist', network('a', a));
    write('20.conflist', network('b', b));
    const findings = await found();
    expect(findings.map(line => line.split(' ').slice(0, 3).join(' '))).toEqual(
      overlaps ? ['20.conflist warning overlap'] : [],
    );
    if (overlaps) expect(findings[0]).toContain('of network "a" ("/10.conflist" line 1)');
  });
});

describe('the mistakes that people make in their first lists', () => {
  const told = async (name: string, content: unknown) =>
    (await validate(write(name, content))).map(line => line.replace(/^\S+ /, ''));
  const SUBNET = { subnet: '10.1.0.0/24' };
  const leased = (range: object = {}) => ({ type: 'host-local', ranges: [[{ ...SUBNET, ...range }]] });
  const list = (...plugins: unknown[]) => ({ cniVersion: '1.0.0', name: 'podnet', plugins });

  test.each<[string, unknown, string[]]>([
    [
      'a gateway outside of its subnet',
      list({ type: 'bridge', isGateway: true, ipam: leased({ gateway: '10.2.0.1' }) }),
      [
        'warning option gateway 10.2.0.1 is outside of the subnet 10.1.0.0/24: containers look for it on their link, where it needs a route back to them',
      ],
    ],
    [
      'the same for a macvlan',
      list({ type: 'macvlan', ipam: leased({ gateway: '10.2.0.1' }) }),
      [
        'warning option gateway 10.2.0.1 is outside of the subnet 10.1.0.0/24: containers look for it on their link, where it needs a route back to them',
      ],
    ],
    [
      'a name that leaves no room for those of containers',
      { ...list({ type: 'bridge', ipam: leased() }), name: 'n'.repeat(175) },
      [
        'warning shape "name" has 175 characters: with more than 174, runtimes cannot write the results of containers, whose files are named after it',
      ],
    ],
    // It makes a route to the gateway.
    ['not for ptp', list({ type: 'ptp', ipam: leased({ gateway: '169.254.1.1' }) }), []],
    [
      'masquerading without a gateway',
      list({ type: 'bridge', ipMasq: true, ipam: leased() }),
      [
        'warning option "ipMasq" does nothing unless containers send their packets through the bridge: set "isGateway" or "isDefaultGateway" as well',
      ],
    ],
    [
      'a gateway that is refused and wanted',
      list({ type: 'bridge', isgateway: false, isDefaultGateway: true, ipam: leased() }),
      ['warning option "isGateway" is false, but "isDefaultGateway" makes the bridge a gateway nevertheless'],
    ],
    [
      'the loopback device as a bridge',
      list({ type: 'bridge', bridge: 'lo' }),
      [
        'error option Cannot use bridge configuration: "bridge" is "lo", which is the loopback device of every host',
      ],
    ],
    [
      'a single configuration in a file for lists',
      { cniVersion: '0.3.1', name: 'podnet', type: 'bridge' },
      [
        'error file-name no runtime loads this file: it is a single plugin configuration, not a list; name the file .conf, or put the configuration in "plugins" of a list',
      ],
    ],
    ['nothing in a list without a mistake', list({ type: 'bridge', isGateway: true, ipam: leased() }), []],
  ])('%s', async (_, content, expected) => {
    expect(await told('10.conflist', content)).toEqual(expected);
  });

  test('a list in a file for single configurations', async () => {
    const [finding = ''] = await told('10.conf', list({ type: 'loopback' }));
    expect(finding).toStartWith('error file-name no runtime loads this file');
  });

  test('a value of a wrong type, a wrong option and a wrong version in one look', async () => {
    const plugin = { type: 'bridge', mtu: 'large', hairpinMode: true, promiscMode: true };
    const findings = await told('10.conflist', { ...list(plugin), cniVersion: '9.0.0' });
    expect(findings).toEqual([
      expect.stringContaining('error version'),
      expect.stringContaining('error shape "mtu" must be a number of bytes'),
      expect.stringContaining(
        'error option Cannot use bridge configuration: "hairpinMode" and "promiscMode"',
      ),
    ]);
  });

  test('a wrong value does not make another finding of what depends on it', async () => {
    expect(await told('10.conflist', list({ type: 'bridge', ipMasqBackend: 7, vlan: 'x' }))).toEqual([
      expect.stringContaining('error shape'),
      expect.stringContaining('error shape'),
    ]);
  });
});

test('ten times as many mistakes take ten times as long', async () => {
  const effort = async (mistakes: number) => {
    const sysctl = Object.fromEntries(Array.from({ length: mistakes }, (_, i) => [`net.ipv4.k${i}`, i]));
    const file = write('10.conflist', list({ type: 'loopback' }, { type: 'tuning', sysctl }));
    const looked = spyOn(JSON, 'stringify');
    expect(await validate(file)).toHaveLength(mistakes);
    const { length } = looked.mock.calls;
    looked.mockRestore();
    return length;
  };
  expect(await effort(300)).toBeLessThan(11 * (await effort(30)));
});
