// How does a test change an attachment in place, and what does it then look at?
import fs from 'node:fs';
import { CATENA } from './catena.ts';
import { type Chain, writeChain } from './chain.ts';
import type { Finished } from './command.ts';
import { type Container, directories, type Lab, type Row } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** What may change: capability arguments, and options by plugin. */
export interface WantedChange {
  readonly cap?: object;
  readonly conf?: object;
}

const MBIT = 1_000_000;

/** A chain of every plugin that can change its part. @param more plugins after them */
export function changeableChain(lab: Lab, ...more: Row[]): Chain {
  const range = { type: 'host-local', subnet: '10.88.0.0/16', dataDir: `${lab.tmp}/leases` };
  return writeChain(lab, {
    cniVersion: '1.1.0',
    name: 'podnet',
    plugins: [
      { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipMasq: true, hairpinMode: true, ipam: range },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'firewall' },
      { type: 'bandwidth', capabilities: { bandwidth: true } },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` },
      ...more,
    ],
  });
}

/** Host ports that lead to port 80 of the container. */
export function ports(...hostPorts: number[]): Row[] {
  return hostPorts.map(hostPort => ({ hostPort, containerPort: 80, protocol: 'tcp' }));
}

/** Limits of both directions. */
export function rates(mbit: number): Row {
  const [rate, burst] = [mbit * MBIT, MBIT];
  return { ingressRate: rate, ingressBurst: burst, egressRate: rate, egressBurst: burst };
}

/** The command line of `catena set`. */
export function setCommand(container: Container, wanted: WantedChange, ...more: string[]): string[] {
  const options = Object.entries(wanted).flatMap(([name, value]) => [`--${name}`, JSON.stringify(value)]);
  const own = more.includes('--bin-dir') ? [] : ['--bin-dir', BIN_DIR];
  return [CATENA, 'set', container.id, 'podnet', ...own, ...options, ...more];
}

/** Runs `catena set`. */
export function set(
  lab: Lab,
  container: Container,
  wanted: WantedChange,
  ...more: string[]
): Promise<Finished> {
  const argv = setCommand(container, wanted, ...more);
  return lab.run(lab.host, argv, { env: directories(lab.tmp), timeoutMs: 60_000 });
}

/** Runs another command on the journal. */
export function onJournal(lab: Lab, ...args: string[]): Promise<Finished> {
  const argv = [CATENA, ...args, '--bin-dir', BIN_DIR];
  return lab.run(lab.host, argv, { env: directories(lab.tmp), timeoutMs: 60_000 });
}

/** libcni's cached result of the container's attachment. */
export function cachedOf(lab: Lab, { id }: Container): Row {
  const text = fs.readFileSync(`${lab.tmp}/cni/results/podnet-${id}-eth0`, 'utf8');
  const cached = JSON.parse(text);
  return { ...cached, config: JSON.parse(Buffer.from(cached.config, 'base64').toString()) };
}

/** What the kernel has of an attachment's settings: host ports, rates in Mbit/s, the policy's chain, and a sysctl. */
export async function settingsOf(lab: Lab, container: Container): Promise<Row> {
  const { stdout } = await lab.run(lab.host, ['nft', '-j', 'list', 'ruleset']);
  const rows: Row[] = JSON.parse(stdout).nftables;
  const elements = (name: string): Row[][] => rows.find(({ map }) => map?.name === name)?.map.elem ?? [];
  const hostPorts = elements('wildcard4').map(([key]) => (key?.elem?.val ?? key).concat[1] as number);
  const policies = elements('ingress4').map(([, verdict]) => verdict?.goto.target as string);
  const qdiscs = await lab.tc(lab.host, 'qdisc', 'show');
  const limits = qdiscs.filter(({ kind }) => kind === 'tbf').map(({ options }) => (options.rate * 8) / MBIT);
  return {
    ports: hostPorts.sort(),
    rates: limits,
    policies,
    somaxconn: await lab.sysctl(container, 'net/core/somaxconn'),
  };
}
