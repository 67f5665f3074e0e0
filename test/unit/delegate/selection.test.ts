import { describe, expect, test } from 'bun:test';
import { parseSelections } from '../../../src/delegate/selection.ts';

const parse = (text: string) => parseSelections(text, 'annotation "x"');
const names = (text: string) =>
  parse(text).map(({ namespace, name, ifname }) => `${namespace ?? ''}/${name}@${ifname ?? ''}`);

describe('parseSelections()', () => {
  test.each([
    ['', []],
    ['  ', []],
    ['a', ['/a@']],
    ['a,b', ['/a@', '/b@']],
    [' a , b ', ['/a@', '/b@']],
    ['a,', ['/a@']],
    ['ns/a', ['ns/a@']],
    ['ns/a@net1', ['ns/a@net1']],
    ['a@Eth_0', ['/a@Eth_0']],
    ['a,a,a', ['/a@', '/a@', '/a@']],
    ['my.net-1', ['/my.net-1@']],
    ['[]', []],
    ['[{"name":"a"}]', ['/a@']],
    ['[{"name":"a","namespace":"ns","interface":"net1"}]', ['ns/a@net1']],
    ['[{"name":"a","interfaceRequest":"old"}]', ['/a@old']],
    ['[{"name":"a","interface":"new","interfaceRequest":"old"}]', ['/a@new']],
    ['[{"Name":"a","Namespace":"ns"}]', ['ns/a@']],
    ['[{"name":"a","unknown.example.com/key":1}]', ['/a@']],
  ])('parses %j as %j', (text, expected) => {
    expect(names(text)).toEqual(expected);
  });

  test.each([
    ['a@b@c', 'expected [namespace/]name[@interface]'],
    ['a/b/c', 'expected [namespace/]name[@interface]'],
    ['NS/a', 'namespace "NS" must contain only lower-case letters'],
    ['ns/', 'network name "" must contain only'],
    ['a@', 'interface name is empty'],
    ['a@much-too-long-a-name', 'longer than 15 bytes'],
    ['a@b c', 'must not contain "/", ":" or white space'],
    ['a b', 'network name "a b" must contain only'],
    ['..', 'network name ".." must contain only'],
    ['{"name":"a"}', 'expected an array of objects'],
    ['[{}]', 'element 0 of annotation "x": it has no "name"'],
    ['[{"name":"a"},{"name":5}]', 'element 1 of annotation "x": "name" must be of type string, found 5'],
    ['[{"name":"/etc/cni/net.d/x.conflist"}]', 'network name "/etc/cni/net.d/x.conflist" must contain only'],
    ['[{"name":"a","namespace":"../x"}]', 'namespace "../x" must contain only'],
    ['[{"config":{"type":"host-device"}}]', "is allowed only in the runner's own configuration"],
    ['[{"name":"a","interface":"a/b"}]', 'must not contain "/"'],
    ['[{"name":"a","ips":["10.0.0.300"]}]', '"ips[0]" must be an address'],
    ['[{"name":"a","mac":"00:11"}]', '"mac" must be six bytes'],
    ['[{"name":"a","infiniband-guid":"00:11:22:33:44:55"}]', '"infiniband-guid" must be eight bytes'],
    [
      '[{"name":"a","portMappings":[{"hostPort":0,"containerPort":80}]}]',
      '"portMappings[0].hostPort" must be at least 1',
    ],
    ['[{"name":"a","portMappings":[{"hostPort":80,"containerPort":65536}]}]', 'must be at most 65535'],
    ['[{"name":"a","bandwidth":{"ingressBurst":5}}]', 'has a burst without a rate'],
    ['[{"name":"a","default-route":["gateway"]}]', '"default-route[0]" must be an address'],
    [
      '[{"name":"a","ipam-claim-reference":"a/b"}]',
      '"ipam-claim-reference" "a/b" is not a valid Kubernetes object name',
    ],
    ['[{"name":"a","ipam-claim-reference":"b","ips":["10.0.0.2"]}]', '"b" and "ips" both request'],
  ])('refuses %j: %s', (text, problem) => {
    expect(() => parse(text)).toThrow(problem);
  });

  test('refuses what would cost too much, with its name and in few words', () => {
    const nested = (levels: number) =>
      `[{"name":"a","cni-args":{"x":${'['.repeat(levels)}${']'.repeat(levels)}}}]`;
    expect(parse(nested(29))).toHaveLength(1);
    const many = (value: unknown, count: number) => Array(count).fill(value);
    const [port, ip] = [{ hostPort: 80, containerPort: 80 }, '10.0.0.1'];
    for (const [text, problem] of [
      [nested(30), 'its JSON is nested more than 32 levels deep'],
      [nested(40_000), 'its JSON is nested more than 32 levels deep'],
      ['a,'.repeat(200_000), 'it has 400000 characters, more than 262144'],
      [JSON.stringify([{ name: 'a', ips: many(ip, 33) }]), '"ips" must have no more than 32 addresses'],
      [JSON.stringify([{ name: 'a', 'default-route': many(ip, 33) }]), 'no more than 32 addresses'],
      [JSON.stringify([{ name: 'a', portMappings: many(port, 1_025) }]), 'no more than 1024 ports'],
      [
        JSON.stringify([{ name: 'a', portMappings: many({ hostPort: 0, containerPort: 80 }, 1_000) }]),
        'and 990 more',
      ],
    ] as const) {
      const refused = expect.objectContaining({ code: 7, message: expect.stringContaining(problem) });
      expect(() => parse(text)).toThrow(refused);
      try {
        parse(text);
      } catch (error) {
        expect((error as Error).message).toContain('annotation "x"');
        expect((error as Error).message.length).toBeLessThan(4_000);
      }
    }
    // Brackets inside of text are no levels.
    expect(parse(`[{"name":"a","cni-args":{"x":"${'['.repeat(99)}\\"[${'{'.repeat(99)}"}}]`)).toHaveLength(1);
  });

  test.each(['c2b0.5749.47f3', 'C2-B0-57-49-47-F3', 'c2:b0:57:49:47:f3'])(
    'takes hardware address %s',
    mac => {
      expect(parse(JSON.stringify([{ name: 'a', mac }]))[0]?.capabilityArgs).toEqual({
        mac: 'c2:b0:57:49:47:f3',
      });
    },
  );

  test('gives text that is not JSON code 6, and all else code 7', () => {
    expect(() => parse('[{]')).toThrow(expect.objectContaining({ code: 6, details: '[{]' }));
    expect(() => parse('a@b@c')).toThrow(expect.objectContaining({ code: 7 }));
  });

  test('accepts every member of the specification', () => {
    const [one] = parse(
      JSON.stringify([
        {
          name: 'a',
          namespace: 'ns',
          interface: 'net7',
          ips: ['10.1.2.3/24', 'fd00::5'],
          mac: '02:00:00:00:00:01',
          'infiniband-guid': '00:11:22:33:44:55:66:77',
          portMappings: [{ hostPort: 80, containerPort: 8080, protocol: 'tcp' }],
          bandwidth: { ingressRate: 5, ingressBurst: 6 },
          'default-route': ['10.1.2.1'],
          'cni-args': { hint: 1 },
          deviceID: '0000:01:00.0',
        },
      ]),
    );
    expect(one).toEqual({
      name: 'a',
      namespace: 'ns',
      config: undefined,
      ifname: 'net7',
      capabilityArgs: {
        ips: ['10.1.2.3/24', 'fd00::5'],
        mac: '02:00:00:00:00:01',
        infinibandGUID: '00:11:22:33:44:55:66:77',
        portMappings: [{ hostPort: 80, containerPort: 8080, protocol: 'tcp' }],
        bandwidth: { ingressRate: 5, ingressBurst: 6 },
      },
      defaultRoute: ['10.1.2.1'],
      cniArgs: { hint: 1 },
      deviceId: '0000:01:00.0',
      getsRuntimeConfig: undefined,
      claim: undefined,
    });
    expect(parse('[{"name":"a","ipam-claim-reference":"vm-1.lan"}]')).toEqual([
      expect.objectContaining({ name: 'a', claim: 'vm-1.lan' }),
    ]);
  });
});
