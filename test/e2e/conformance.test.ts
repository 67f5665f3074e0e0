// Which rules of the protocol do our plugins keep, and which do the reference's? Prints the table.
import { afterAll, expect, test } from 'bun:test';
import { existsSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import { run, TEST_PATH } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import {
  describeRoot,
  type Need,
  requires,
  requiresLinkKind,
  requiresUpperKind,
  requiresVlanDevices,
  requiresVrf,
  testNeeding,
} from '../helpers/skip.ts';

interface Rule {
  readonly id: string;
  readonly level: 'must' | 'should';
  readonly outcome: 'kept' | 'broken' | 'skipped';
  readonly details?: string;
}

interface Report {
  readonly ok: boolean;
  readonly supportedVersions: readonly string[];
  readonly rules: readonly Rule[];
}

/** A configuration to examine a plugin with; none where it needs more than a namespace. */
interface Sample {
  readonly conf?: object;
  readonly args?: readonly string[];
  readonly timeoutMs?: number;
}

const tmp = mkdtempSync(join(tmpdir(), `cat-${process.pid}-`));
const subnetFile = join(tmp, 'subnet.env');
writeFileSync(
  subnetFile,
  'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n',
);
const ipam = { type: 'host-local', ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]] };
const ipam4 = { type: 'host-local', subnet: '10.88.0.0/24' };
const onDevice = ['--device', 'dev0'];
const rates = { ingressRate: 8e6, ingressBurst: 4e6, egressRate: 8e6, egressBurst: 4e6 };
const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
const addresses = [{ address: '10.5.0.2/24', gateway: '10.5.0.1' }];

const SAMPLES: Readonly<Record<string, Sample>> = {
  bandwidth: { conf: rates, args: ['--chained'] },
  bridge: { conf: { bridge: 'br0', isDefaultGateway: true, ipMasq: true, ipam } },
  cluster: { conf: { ipam: { type: 'cluster', subnets: [{ ipv4: '10.88.0.0/24', ipv6: 'fd88::/120' }] } } },
  // Its ADD needs a server on the network.
  dhcp: {
    conf: { ipam: { type: 'dhcp', timeout: 5 } },
    args: ['--on-bridge', 'lan0', '--beside', join(import.meta.dir, '../fixtures/dhcp-server')],
    timeoutMs: 170_000,
  },
  dummy: { conf: { ipam: ipam4 } },
  firewall: { conf: { backend: 'iptables' }, args: ['--chained'] },
  flannel: { conf: { subnetFile } },
  'host-device': { conf: { device: 'dev0', ipam: ipam4 }, args: onDevice },
  'host-local': { conf: { ipam } },
  ipvlan: { conf: { master: 'dev0', ipam: ipam4 }, args: onDevice },
  loopback: { conf: {}, args: ['--ifname', 'lo'] },
  macvlan: { conf: { master: 'dev0', ipam: ipam4 }, args: onDevice },
  portmap: { conf: { runtimeConfig: { portMappings } }, args: ['--chained'] },
  ptp: { conf: { ipMasq: true, ipam: ipam4 } },
  sbr: { conf: {}, args: ['--chained'] },
  static: { conf: { ipam: { type: 'static', addresses } } },
  tap: { conf: { ipam: ipam4 } },
  tuning: {
    conf: { sysctl: { 'net.core.somaxconn': '321' }, mtu: 1400, promisc: true },
    args: ['--chained'],
  },
  // Only a cluster makes its ADD work (test/e2e/cluster-ipam.test.ts).
  whereabouts: {},
  vlan: { conf: { master: 'dev0', vlanId: 5, ipam: ipam4 }, args: onDevice },
  vrf: { conf: { vrfname: 'blue' }, args: ['--chained'] },
};

/** What the kernel must have for a plugin. */
const NEEDS: Readonly<Record<string, Need>> = {
  dhcp: requires('dnsmasq'),
  dummy: requiresLinkKind('dummy'),
  ipvlan: requiresUpperKind('ipvlan'),
  macvlan: requiresUpperKind('macvlan'),
  vlan: requiresVlanDevices(),
  vrf: requiresVrf(),
  whereabouts: 'needs the API of a cluster, which the examination does not start',
};

const REFERENCE_NAMES = existsSync(REFERENCE_BIN_DIR) ? readdirSync(REFERENCE_BIN_DIR).sort() : [];
const AT_ONCE = 3;

const executables = [
  ...PLUGIN_NAMES.map(name => join(BIN_DIR, name)),
  ...REFERENCE_NAMES.map(name => join(REFERENCE_BIN_DIR, name)),
];
const reports = new Map<string, Promise<Report>>();

describeRoot('catena conformance', () => {
  afterAll(async () => {
    process.stdout.write(await renderTable());
    rmSync(tmp, { recursive: true, force: true });
  });

  test('a sample exists for every plugin', () => {
    const without = PLUGIN_NAMES.filter(name => SAMPLES[name]?.conf === undefined);
    expect(without.filter(name => NEEDS[name] === undefined)).toEqual([]);
  });

  for (const name of PLUGIN_NAMES) {
    testNeeding(`${name} keeps every mandatory rule`, async () => examineOwn(name), NEEDS[name]);
  }

  async function examineOwn(name: string): Promise<void> {
    const report = await reportOn(join(BIN_DIR, name));
    expect(report.rules.filter(({ level, outcome }) => level === 'must' && outcome === 'broken')).toEqual([]);
    expect(report.ok).toBe(true);
    expect(report.rules.find(({ id }) => id === 'add/works')?.outcome).toBe('kept');
  }

  for (const name of REFERENCE_NAMES) {
    test(`the reference's ${name} is examined to the end`, async () => {
      const { rules, supportedVersions } = await reportOn(join(REFERENCE_BIN_DIR, name));
      expect(supportedVersions).toContain('1.0.0');
      expect(rules.find(({ id }) => id === 'version/answers')?.outcome).toBe('kept');
      expect(rules.find(({ id }) => id === 'reply/error-version')?.outcome).toBe('broken');
    });
  }

  test(
    'the delegate runner in place of multus keeps every mandatory rule',
    async () => {
      const multus = join(tmp, 'multus');
      symlinkSync(join(BIN_DIR, RUNNER_NAME), multus);
      const bridge = (net: number, more: object) => ({
        plugins: [
          { type: 'bridge', bridge: `br${net}`, ipam: { ...ipam4, subnet: `10.${net}.0.0/24` }, ...more },
        ],
      });
      const delegates = [bridge(88, { isDefaultGateway: true, ipMasq: true, ipam }), bridge(89, {})];
      const sample = { conf: { delegates }, args: ['--bin-dir', BIN_DIR], timeoutMs: 170_000 };
      const { rules, ok } = await examine(multus, sample);
      expect(rules.filter(({ level, outcome }) => level === 'must' && outcome === 'broken')).toEqual([]);
      expect(ok).toBe(true);
      expect(rules.find(({ id }) => id === 'add/works')?.outcome).toBe('kept');
    },
    deadline(180_000),
  );

  test('reports the violations of a bad plugin', async () => {
    const bad = join(tmp, 'bad');
    writeFileSync(bad, '#!/bin/sh\ncat >/dev/null\nsleep 300 >/dev/null 2>&1 &\necho hello\n', {
      mode: 0o755,
    });
    const { rules, ok } = await examine(bad, { conf: {} });
    expect(ok).toBe(false);
    const broken = rules.filter(({ outcome }) => outcome === 'broken').map(({ id }) => id);
    const expected = [
      ...['version/answers', 'env/unknown-command', 'env/missing-add', 'request/not-json', 'add/works'],
      ...['reply/only-protocol', 'process/leaves-none'],
    ];
    expect(expected.filter(id => !broken.includes(id))).toEqual([]);
  });

  test('takes the configuration from a list', async () => {
    const list = `${import.meta.dir}/../../conflists/bridge-full.conflist`;
    const { rules } = await examine(join(BIN_DIR, 'tuning'), { args: ['--from', list] });
    expect(rules.find(({ id }) => id === 'chain/passes-result')?.outcome).toBe('kept');
  });
});

/** The report on one executable; those of the next ones are started ahead, since most of the time is spent waiting. */
function reportOn(executable: string): Promise<Report> {
  const at = executables.indexOf(executable);
  for (const next of executables.slice(at, at + AT_ONCE)) {
    if (reports.has(next)) continue;
    const report = examine(next, SAMPLES[basename(next)] ?? {});
    report.catch(() => {});
    reports.set(next, report);
  }
  return (
    reports.get(executable) ?? Promise.reject(new Error(`Cannot find "${executable}" among the executables`))
  );
}

async function examine(executable: string, { conf, args = [], timeoutMs = 55_000 }: Sample): Promise<Report> {
  const file = join(tmp, `${basename(dirname(executable))}-${basename(executable)}.json`);
  if (conf !== undefined) writeFileSync(file, JSON.stringify(conf));
  const given = conf === undefined ? [] : ['--conf', file];
  const argv = [join(BIN_DIR, 'catena'), 'conformance', executable, ...given, ...args, '--json'];
  const { exitCode, stdout, stderr } = await run(argv, {
    env: { PATH: TEST_PATH },
    timeoutMs: deadline(timeoutMs),
  });
  if (exitCode > 1 || stderr !== '') throw new Error(`Cannot examine "${executable}": ${stderr}`);
  return JSON.parse(stdout);
}

/** One row per executable, one per broken rule, and what was seen where a rule must be kept. */
async function renderTable(): Promise<string> {
  const counts: string[] = [];
  const breakers = new Map<string, string[]>();
  const seen: string[] = [];
  for (const executable of executables) {
    const report = await reports.get(executable)?.catch(() => undefined);
    if (report === undefined) continue;
    const name = executable.replace(BIN_DIR, 'catena').replace(REFERENCE_BIN_DIR, 'reference');
    const { rules, supportedVersions } = report;
    const number = (outcome: string, level = /./) =>
      rules.filter(one => one.outcome === outcome && level.test(one.level)).length;
    const versions = `${supportedVersions[0]} to ${supportedVersions.at(-1)}`;
    const numbers = [number('kept'), number('broken', /must/), number('broken', /should/), number('skipped')];
    counts.push(`| ${name} | ${versions} | ${numbers.join(' | ')} |`);
    for (const { id, level, outcome, details } of rules) {
      const matters = level === 'must' || name.startsWith('catena');
      if (outcome === 'broken')
        breakers.set(`${level} | ${id}`, [...(breakers.get(`${level} | ${id}`) ?? []), name]);
      if (outcome === 'broken' && matters) seen.push(`| ${name} | ${id} | ${details} |`);
      if (outcome === 'skipped' && id === 'add/works') seen.push(`| ${name} | ${id}, skipped | ${details} |`);
    }
  }
  const table = (head: string, rows: readonly string[]) =>
    [head, head.replace(/[^|]+/g, '---'), ...rows, ''].join('\n');
  return [
    '',
    table('| executable | versions | kept | broken, must | broken, should | skipped |', counts),
    table(
      '| level | broken rule | by |',
      [...breakers].sort().map(([rule, names]) => `| ${rule} | ${names.join(', ')} |`),
    ),
    table('| executable | rule | seen |', seen),
  ].join('\n');
}
