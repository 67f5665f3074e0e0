// Which rules of the protocol does an executable keep, by `catena conformance`?
import { expect } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { run, TEST_PATH } from './command.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from './plugin.ts';
import { ROOT } from './source-tree.ts';

export interface Rule {
  readonly id: string;
  readonly level: 'must' | 'should';
  readonly outcome: 'kept' | 'broken' | 'skipped';
  readonly details?: string;
}

export interface Report {
  readonly ok: boolean;
  readonly supportedVersions: readonly string[];
  readonly rules: readonly Rule[];
}

/** A configuration to examine a plugin with; none where it needs more than a namespace. */
export interface Sample {
  readonly conf?: object;
  readonly args?: readonly string[];
  readonly timeoutMs?: number;
}

/** For configurations and executables of one test file, until {@link endExamination}. */
export const tmp = mkdtempSync(join(tmpdir(), `cat-${process.pid}-`));
const subnetFile = join(tmp, 'subnet.env');
writeFileSync(
  subnetFile,
  'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n',
);
export const ipam = { type: 'host-local', ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]] };
export const ipam4 = { type: 'host-local', subnet: '10.88.0.0/24' };
const onDevice = ['--device', 'dev0'];
const rates = { ingressRate: 8e6, ingressBurst: 4e6, egressRate: 8e6, egressBurst: 4e6 };
const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
const addresses = [{ address: '10.5.0.2/24', gateway: '10.5.0.1' }];

export const SAMPLES: Readonly<Record<string, Sample>> = {
  bandwidth: { conf: rates, args: ['--chained'] },
  bridge: { conf: { bridge: 'br0', isDefaultGateway: true, ipMasq: true, ipam } },
  cluster: { conf: { ipam: { type: 'cluster', subnets: [{ ipv4: '10.88.0.0/24', ipv6: 'fd88::/120' }] } } },
  // Its ADD needs a server on the network.
  dhcp: {
    conf: { ipam: { type: 'dhcp', timeout: 5 } },
    args: ['--on-bridge', 'lan0', '--beside', join(ROOT, 'test/fixtures/dhcp-server')],
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

/** The reports that an examination made. */
const reports = new Map<string, Promise<Report>>();

/** The report on one executable, with its sample; each is examined once. */
export function reportOn(executable: string): Promise<Report> {
  const report = reports.get(executable) ?? examine(executable, SAMPLES[basename(executable)] ?? {});
  reports.set(executable, report);
  return report;
}

/** A plugin of ours keeps every rule that it must. */
export async function expectConforming(name: string): Promise<void> {
  const report = await reportOn(join(BIN_DIR, name));
  expect(report.rules.filter(({ level, outcome }) => level === 'must' && outcome === 'broken')).toEqual([]);
  expect(report.ok).toBe(true);
  expect(report.rules.find(({ id }) => id === 'add/works')?.outcome).toBe('kept');
}

/** Prints the table of all reports. */
export async function endExamination(): Promise<void> {
  process.stdout.write(await renderTable());
  rmSync(tmp, { recursive: true, force: true });
}

/** Runs the command. @throws Error if it could not be examined */
export async function examine(
  executable: string,
  { conf, args = [], timeoutMs = 55_000 }: Sample,
): Promise<Report> {
  const file = join(tmp, `${basename(dirname(executable))}-${basename(executable)}.json`);
  if (conf !== undefined) writeFileSync(file, JSON.stringify(conf));
  const given = conf === undefined ? [] : ['--conf', file];
  const argv = [join(BIN_DIR, 'catena'), 'conformance', executable, ...given, ...args, '--json'];
  const { exitCode, stdout, stderr } = await run(argv, {
    env: { PATH: TEST_PATH },
    timeoutMs,
  });
  if (exitCode > 1 || stderr !== '') throw new Error(`Cannot examine "${executable}": ${stderr}`);
  return JSON.parse(stdout);
}

/** One row per executable, one per broken rule, and what was seen where a rule must be kept. */
async function renderTable(): Promise<string> {
  const counts: string[] = [];
  const breakers = new Map<string, string[]>();
  const seen: string[] = [];
  for (const [executable, pending] of reports) {
    const report = await pending.catch(() => undefined);
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
