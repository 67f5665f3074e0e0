// How does cnitool add and delete an attachment? (libcni's cached results are written and read here according to their documented
// format; nothing is imported from src/)

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import type { Container, Lab, Row } from './netns.ts';

/** A mapping of one family, which CHECK of Debian's portmap cannot find. */
export const PORTS = {
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp', hostIP: '10.1.2.3' }],
};
const ARGS: [string, string][] = [['IgnoreUnknown', '1']];

/** A network on disk, and the directory of its cached results. */
export interface Network {
  readonly text: string;
  readonly list: Row;
  readonly file: string;
  readonly cache: string;
}

/** cnitool's name for a namespace. */
export const idOf = ({ path: netns }: Container) =>
  `cnitool-${createHash('sha512').update(netns).digest('hex').slice(0, 20)}`;

/** Writes a conflist of three plugins into the lab. */
export function configure(lab: Lab, cniVersion: string): Network {
  const list = {
    cniVersion,
    name: 'podnet',
    plugins: [
      {
        type: 'bridge',
        bridge: 'br0',
        isGateway: true,
        ipam: { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` },
      },
      { type: 'portmap', capabilities: { portMappings: true }, snat: false },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` },
    ],
  };
  const file = `${lab.tmp}/net.d/10-podnet.conflist`;
  const text = `${JSON.stringify(list, null, 2)}\n`;
  fs.mkdirSync(path.dirname(file));
  fs.writeFileSync(file, text);
  return { text, list, file, cache: `${lab.tmp}/cni/results/podnet-` };
}

/** What libcni sends to a plugin. */
function requestFor({ list }: Network, plugin: Row, prevResult: unknown, capabilityArgs: Row): Row {
  const wanted = Object.entries(capabilityArgs).filter(([name]) => plugin.capabilities?.[name]);
  return {
    ...plugin,
    name: list.name,
    cniVersion: list.cniVersion,
    ...(prevResult ? { prevResult } : {}),
    ...(wanted.length ? { runtimeConfig: Object.fromEntries(wanted) } : {}),
  };
}

/** Which plugins are called, and what the runtime offers them. */
export interface Call {
  readonly binDir: string;
  readonly capabilityArgs: Row;
  /** Variables in addition to those of the protocol. */
  readonly env?: Readonly<Record<string, string>>;
}

async function callPlugin(
  lab: Lab,
  network: Network,
  container: Container,
  verb: string,
  plugin: Row,
  call: Call & { prevResult: unknown },
): Promise<Row> {
  const conf = requestFor(network, plugin, call.prevResult, call.capabilityArgs);
  const args = ARGS.map(pair => pair.join('=')).join(';');
  const { exitCode, stdout, result } = await lab.plugin(plugin.type, {
    command: verb,
    conf,
    container: { ...container, id: idOf(container) },
    args,
    binDir: call.binDir,
    ...(call.env ? { env: call.env } : {}),
  });
  if (exitCode !== 0) throw new Error(`${verb} of ${plugin.type} failed: ${stdout}`);
  return result;
}

/** ADD as libcni does it, including its cached result. */
export async function addByHand(lab: Lab, network: Network, container: Container, call: Call): Promise<Row> {
  let result: Row | undefined;
  for (const plugin of network.list.plugins)
    result = await callPlugin(lab, network, container, 'ADD', plugin, { ...call, prevResult: result });
  fs.mkdirSync(`${lab.tmp}/cni/results`, { recursive: true, mode: 0o700 });
  fs.writeFileSync(
    `${network.cache}${idOf(container)}-eth0`,
    recordOf(network, container, call, result as Row),
  );
  return result as Row;
}

/** DEL as libcni does it, from the cached result. */
export async function deleteByHand(
  lab: Lab,
  network: Network,
  container: Container,
  binDir: string,
): Promise<void> {
  const file = `${network.cache}${idOf(container)}-eth0`;
  const record = JSON.parse(fs.readFileSync(file, 'utf8'));
  const list: Row = JSON.parse(Buffer.from(record.config, 'base64').toString());
  for (const plugin of list.plugins.toReversed()) {
    const call = { binDir, capabilityArgs: record.capabilityArgs ?? {}, prevResult: record.result };
    await callPlugin(lab, { ...network, list }, container, 'DEL', plugin, call);
  }
  fs.rmSync(file);
}

/** The bytes of libcni's cached result: these fields in this order, `config` in base64, keys of free-form objects sorted. */
export function recordOf(
  network: Network,
  container: Container,
  { capabilityArgs }: Partial<Call>,
  result: Row,
): string {
  return [
    '{"kind":"cniCacheV1"',
    `"containerId":"${idOf(container)}"`,
    `"config":"${Buffer.from(network.text).toString('base64')}"`,
    '"ifName":"eth0"',
    '"networkName":"podnet"',
    `"netns":"${container.path}"`,
    '"cniArgs":[["IgnoreUnknown","1"]]',
    `"capabilityArgs":${sorted(capabilityArgs)}`,
    `"result":${sorted(result)}}`,
  ].join(',');
}

function sorted(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sorted).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${sorted(member)}`).join(',')}}`;
}
