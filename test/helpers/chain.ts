// How does a test run a whole chain through the command, as an operator would?
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import type { Finished } from './command.ts';
import { type Container, directories, type Lab, type Row } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** A conflist in a fake host, and the verbs to run it with. */
export interface Chain {
  readonly name: string;
  /** The conflist as written to the file. */
  readonly list: Row;
  run(verb: string, container: Container, options?: RunChain): Promise<Finished>;
  /** ADD; throws the output of the command if it fails. */
  add(container: Container, options?: RunChain): Promise<Row>;
  /** Names of the current leases. */
  leases(): Promise<string[]>;
}

/** What differs between attachments. */
export interface RunChain {
  readonly cap?: object;
  readonly args?: readonly string[];
  readonly binDir?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** The five plugins with both families, limits in bits per second, and all files inside the lab. */
export function fullChain(lab: Lab, more: { cniVersion?: string; rate?: number } = {}): Row {
  const { cniVersion = '1.1.0', rate = 0 } = more;
  const burst = 400_000;
  const limits = rate ? { ingressRate: rate, ingressBurst: burst, egressRate: rate, egressBurst: burst } : {};
  return {
    cniVersion,
    name: 'podnet',
    plugins: [
      {
        type: 'bridge',
        bridge: 'br0',
        isDefaultGateway: true,
        ipMasq: true,
        hairpinMode: true,
        ipam: {
          type: 'host-local',
          ranges: [[{ subnet: '10.88.0.0/16' }], [{ subnet: 'fd88::/64' }]],
          dataDir: `${lab.tmp}/leases`,
        },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'bandwidth', ...(rate ? limits : { capabilities: { bandwidth: true } }) },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, mtu: 1400, dataDir: `${lab.tmp}/tuning` },
    ],
  };
}

/** Writes a conflist into the lab and returns the verbs for it. */
export function writeChain(lab: Lab, list: Row): Chain {
  const file = `${lab.tmp}/${list.name}.conflist`;
  writeFileSync(file, JSON.stringify(list));
  const run: Chain['run'] = (verb, container, { cap, args = [], binDir = BIN_DIR, env } = {}) => {
    const target = ['gc', 'status'].includes(verb) ? [] : [container.path, '--container-id', container.id];
    const argv = [`${BIN_DIR}/catena`, verb, list.name, ...target, '--file', file, '--bin-dir', binDir];
    const given = cap ? ['--cap', JSON.stringify(cap)] : [];
    return lab.run(lab.host, [...argv, ...given, ...args], {
      env: { ...directories(lab.tmp), ...env },
      timeoutMs: 60_000,
    });
  };
  return {
    name: list.name,
    list,
    run,
    async add(container, options) {
      const { exitCode, stdout, stderr } = await run('add', container, options);
      if (exitCode !== 0) throw new Error(`catena add failed with ${exitCode}: ${stderr}`);
      return JSON.parse(stdout);
    },
    async leases() {
      const { stdout } = await lab.run(lab.host, [
        'find',
        `${lab.tmp}/leases`,
        '-type',
        'f',
        '-name',
        '*[.:]*',
      ]);
      return stdout.split('\n').filter(line => /\/[0-9a-f]+[.:][0-9a-f.:]+$/.test(line));
    },
  };
}

const MIXED = [
  ...['bridge', 'macvlan', 'host-device', 'host-local'],
  ...['firewall', 'portmap', 'bandwidth', 'tuning'],
];

/** A bin directory with our plugins, except for the named ones, which come from another directory. */
export function mixedBinDir(lab: Lab, from: string, ...foreign: string[]): string {
  const dir = `${lab.tmp}/bin-${foreign.join('-') || 'ours'}`;
  if (existsSync(dir)) return dir;
  mkdirSync(dir);
  for (const name of MIXED) {
    symlinkSync(`${foreign.includes(name) ? from : BIN_DIR}/${name}`, `${dir}/${name}`);
  }
  return dir;
}
