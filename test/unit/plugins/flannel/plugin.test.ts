import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FlannelConf } from '../../../../plugins/flannel/config.ts';
import {
  findRecord,
  listRecords,
  parseSubnetEnv,
  planDelegate,
  readSubnetEnv,
  removeRecord,
  sweepRecords,
  writeRecord,
} from '../../../../plugins/flannel/plugin.ts';
import { decode } from '../../../../src/cni/json.ts';
import { renderCidr } from '../../../../src/net/ip.ts';

const ENV = parseSubnetEnv(
  [
    'FLANNEL_NETWORK=10.244.0.0/16',
    'FLANNEL_SUBNET=10.244.3.1/24',
    'FLANNEL_IPV6_NETWORK=fd00:244::/48',
    'FLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64',
    'FLANNEL_MTU=1450',
    'FLANNEL_IPMASQ=true',
  ].join('\n'),
  'subnet.env',
);

function plan(conf: object, env = ENV) {
  const all = { cniVersion: '1.0.0', name: 'cbr0', type: 'flannel', ...conf };
  return planDelegate(decode(FlannelConf, all, 'conf'), env);
}

describe('planDelegate()', () => {
  test('derives a bridge from the file alone', () => {
    expect(plan({})).toEqual({
      cniVersion: '1.0.0',
      name: 'cbr0',
      type: 'bridge',
      mtu: 1450,
      ipMasq: false,
      isGateway: true,
      ipam: {
        type: 'host-local',
        ranges: [[{ subnet: '10.244.3.0/24' }], [{ subnet: 'fd00:244:0:3::/64' }]],
        routes: [{ dst: '10.244.0.0/16' }, { dst: 'fd00:244::/48' }],
      },
    });
  });

  test('prefers the options of the delegate, and masquerades if flanneld does not', () => {
    const delegate = { mtu: 1400, isGateway: false, bridge: 'br9', hairpinMode: true };
    expect(plan({ delegate }, { ...ENV, ipMasq: false })).toMatchObject({ ...delegate, ipMasq: true });
    expect(plan({ delegate: { ipMasq: true } })).toMatchObject({ ipMasq: true });
  });

  test('only a bridge gets a gateway', () => {
    expect(plan({ delegate: { type: 'ipvlan', master: 'eth0' } })).not.toHaveProperty('isGateway');
  });

  test('adds to the IPAM configuration: subnets replace ranges, networks follow routes', () => {
    const ipam = {
      type: 'other',
      dataDir: '/d',
      ranges: [[{ subnet: '10.9.0.0/24' }]],
      routes: [{ dst: '0.0.0.0/0' }],
    };
    expect(plan({ ipam }).ipam).toEqual({
      type: 'other',
      dataDir: '/d',
      ranges: [[{ subnet: '10.244.3.0/24' }], [{ subnet: 'fd00:244:0:3::/64' }]],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '10.244.0.0/16' }, { dst: 'fd00:244::/48' }],
    });
  });

  test('passes on runtimeConfig', () => {
    const runtimeConfig = { portMappings: [{ hostPort: 1 }] };
    expect(plan({ runtimeConfig, delegate: { runtimeConfig: {} } })).toMatchObject({ runtimeConfig });
  });
});

const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-flannel-'));
afterAll(() => fs.rmSync(tmp, { recursive: true }));

let count = 0;
const fresh = () => join(tmp, String(count++));
const [ETH0, NET1] = [
  { containerId: 'c1', ifname: 'eth0' },
  { containerId: 'c1', ifname: 'net1' },
];

describe('records of flannel', () => {
  test("are found under our name and the reference's, and deleted together", () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { type: 'bridge' });
    expect(fs.readdirSync(dir).sort()).toEqual(['c1', 'c1:eth0']);
    expect(JSON.parse(fs.readFileSync(join(dir, 'c1'), 'utf8'))).toEqual({ type: 'bridge' });
    expect(fs.statSync(join(dir, 'c1')).mode & 0o777).toBe(0o600);
    expect(findRecord(dir, ETH0)).toEqual({ type: 'bridge' });
    expect(listRecords(dir)).toEqual([ETH0]);
    removeRecord(dir, ETH0);
    removeRecord(dir, ETH0);
    expect(fs.readdirSync(dir)).toEqual([]);
  });

  test('of two attachments of one container do not overwrite each other', () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { mtu: 1 });
    writeRecord(dir, NET1, { mtu: 2 });
    expect([findRecord(dir, ETH0), findRecord(dir, NET1)]).toEqual([{ mtu: 1 }, { mtu: 2 }]);
    expect(JSON.parse(fs.readFileSync(join(dir, 'c1'), 'utf8'))).toEqual({ mtu: 1 });
    removeRecord(dir, NET1);
    expect(fs.readdirSync(dir).sort()).toEqual(['c1', 'c1:eth0']);
    removeRecord(dir, ETH0);
    expect(fs.readdirSync(dir)).toEqual([]);
  });

  test('of the reference are read and removed, and replaced by a later ADD', () => {
    const dir = fresh();
    fs.mkdirSync(dir);
    fs.writeFileSync(join(dir, 'c1'), '{"mtu":3}');
    expect(findRecord(dir, ETH0)).toEqual({ mtu: 3 });
    removeRecord(dir, ETH0);
    expect(fs.readdirSync(dir)).toEqual([]);
    fs.writeFileSync(join(dir, 'c1'), '{"mtu":3}');
    writeRecord(dir, ETH0, { mtu: 4 });
    expect(JSON.parse(fs.readFileSync(join(dir, 'c1'), 'utf8'))).toEqual({ mtu: 4 });
  });

  test('that are written again stay one file', () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { mtu: 1 });
    writeRecord(dir, ETH0, { mtu: 2 });
    expect(fs.readdirSync(dir).sort()).toEqual(['c1', 'c1:eth0']);
    expect(fs.readFileSync(join(dir, 'c1'), 'utf8')).toBe('{"mtu":2}');
  });

  test('that are truncated are reported', () => {
    const dir = fresh();
    fs.mkdirSync(dir);
    fs.writeFileSync(join(dir, 'c1'), '');
    expect(() => findRecord(dir, ETH0)).toThrow(`Cannot decode delegate's configuration in "${dir}/c1"`);
  });

  test('that a killed ADD left unfinished are no records, and are deleted by DEL', () => {
    const dir = fresh();
    fs.mkdirSync(dir);
    const half = join(dir, '.c1:eth0');
    for (const left of [
      () => fs.writeFileSync(half, '{"mt'),
      () => {
        writeRecord(dir, ETH0, { mtu: 1 });
        fs.linkSync(join(dir, 'c1'), half);
      },
    ]) {
      left();
      expect(listRecords(dir)).toEqual(fs.existsSync(join(dir, 'c1')) ? [ETH0] : []);
      removeRecord(dir, ETH0);
      expect(fs.readdirSync(dir)).toEqual([]);
    }
  });

  test('that are unfinished for long are removed by GC', () => {
    const dir = fresh();
    writeRecord(dir, ETH0, { mtu: 1 });
    for (const name of ['.c2:eth0', '.c3:eth0', 'c4.new']) fs.writeFileSync(join(dir, name), '{"mt');
    for (const name of ['.c2:eth0', 'c1:eth0', 'c4.new']) fs.utimesSync(join(dir, name), 0, 0);
    sweepRecords(dir);
    expect(fs.readdirSync(dir).sort()).toEqual(['.c3:eth0', 'c1', 'c1:eth0', 'c4.new']);
  });

  test('do not exist without a directory', () => {
    expect([findRecord('/nonexistent', ETH0), listRecords('/nonexistent')]).toEqual([undefined, []]);
  });
});

function parse(...lines: string[]) {
  const { networks, subnets, ...rest } = parseSubnetEnv(lines.join('\n'), 'subnet.env');
  return { networks: networks.map(renderCidr), subnets: subnets.map(renderCidr), ...rest };
}

const V4 = ['FLANNEL_NETWORK=10.244.0.0/16', 'FLANNEL_SUBNET=10.244.3.1/24'];
const V6 = ['FLANNEL_IPV6_NETWORK=fd00:244::/48', 'FLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64'];
const REST = ['FLANNEL_MTU=1450', 'FLANNEL_IPMASQ=true'];

describe('parseSubnetEnv()', () => {
  test('reads one family or both, subnets without their host bits', () => {
    const rest = { mtu: 1450, ipMasq: true };
    const [v4, v6] = ['10.244.0.0/16', 'fd00:244::/48'];
    expect(parse(...V4, ...REST)).toEqual({ networks: [v4], subnets: ['10.244.3.0/24'], ...rest });
    expect(parse(...V6, ...REST)).toEqual({ networks: [v6], subnets: ['fd00:244:0:3::/64'], ...rest });
    expect(parse(...REST, ...V6, '# by flanneld', '', ...V4)).toEqual({
      networks: [v4, v6],
      subnets: ['10.244.3.0/24', 'fd00:244:0:3::/64'],
      ...rest,
    });
  });

  test('several networks are separated by commas', () => {
    const { networks } = parse(
      'FLANNEL_NETWORK=10.1.0.0/16,10.2.0.0/16',
      'FLANNEL_SUBNET=10.1.1.1/24',
      ...REST,
    );
    expect(networks).toEqual(['10.1.0.0/16', '10.2.0.0/16']);
  });

  test('only "true" means that flanneld masquerades', () => {
    expect(parse(...V4, 'FLANNEL_MTU=1450', 'FLANNEL_IPMASQ=1').ipMasq).toBe(false);
  });

  test.each([
    [
      [],
      'it lacks FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET, FLANNEL_MTU',
    ],
    [[...V4, 'FLANNEL_MTU=1450'], 'it lacks FLANNEL_IPMASQ'],
    [[...V4, 'FLANNEL_MTU=big', 'FLANNEL_IPMASQ=true'], 'FLANNEL_MTU is "big"'],
    [['FLANNEL_NETWORK=10.244.0.0', ...REST], 'FLANNEL_NETWORK is "10.244.0.0", expected IPv4 subnets'],
    [['FLANNEL_NETWORK=fd00::/48', ...REST], 'FLANNEL_NETWORK is "fd00::/48", expected IPv4 subnets'],
  ])('refuses %j', (lines, gist) => {
    expect(() => parse(...lines)).toThrow(
      expect.objectContaining({ code: 7, message: expect.stringContaining(gist) }),
    );
  });
});

describe('readSubnetEnv()', () => {
  test('fails with code 11 while flanneld has not written the file', () => {
    expect(() => readSubnetEnv('/nonexistent/subnet.env')).toThrow(
      expect.objectContaining({ code: 11, message: expect.stringContaining('it does not exist') }),
    );
  });
});
