// What do tests of the firewall run on: pods on two bridges, and calls of the plugin?
import { expect } from 'bun:test';
import { type Container, type Lab, type Namespace, type Outside, type Row, untilUp } from './netns.ts';
import type { PluginReply } from './plugin.ts';
import { plugPod } from './pods.ts';
import { LATEST_SPEC_VERSION } from './spec-versions.ts';

/** Tests must not use the machine's own firewalld. */
const NO_BUS = { DBUS_SYSTEM_BUS_ADDRESS: 'unix:path=/nonexistent/bus' };

type BridgeName = 'br1' | 'br2';

/** A container on a bridge, with its addresses. */
export interface Pod extends Container {
  readonly bridge: BridgeName;
  readonly v4: string;
  readonly v6: string;
}

/** The variable part of a plugin call. */
export interface Call {
  readonly version?: string;
  readonly network?: string;
  readonly conf?: object;
  readonly prevResult?: unknown;
  readonly env?: Record<string, string>;
}

const SUBNETS = { br1: { v4: '10.9.1', v6: 'fd00:9:1:' }, br2: { v4: '10.9.2', v6: 'fd00:9:2:' } } as const;
export const FAMILIES = ['v4', 'v6'] as const;
/** The outcome of {@link twoBridges}. */
export interface Scene {
  readonly lab: Lab;
  readonly outside: Outside;
  /** On the first bridge. */
  readonly a: Pod;
  /** Also on the first bridge. */
  readonly b: Pod;
  /** On the second bridge. */
  readonly c: Pod;
}

/** Pods on two hand-made bridges, and a namespace beyond the host. */
export async function twoBridges(createLab: () => Promise<Lab>): Promise<Scene> {
  const lab = await createLab();
  // To forward IPv6, an interface needs its link-local address, which duplicate address detection would delay.
  await lab.sysctl(lab.host, 'net/ipv6/conf/default/accept_dad', 0);
  const outside = await lab.outside();
  for (const bridge of ['br1', 'br2'] as const) {
    const { v4, v6 } = SUBNETS[bridge];
    await lab.batch(
      lab.host,
      `link add ${bridge} type bridge`,
      `addr add ${v4}.1/24 dev ${bridge}`,
      `addr add ${v6}:1/64 dev ${bridge} nodad`,
      `link set ${bridge} up`,
    );
  }
  await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
  await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
  const [a, b] = [await addPod(lab, 'br1', 2), await addPod(lab, 'br1', 3)];
  return { lab, outside, a, b, c: await addPod(lab, 'br2', 2) };
}

/** Another container on a bridge, with the last number of its addresses. */
export async function addPod(lab: Lab, bridge: BridgeName, number: number): Promise<Pod> {
  const { v4, v6 } = SUBNETS[bridge];
  const pod = { ...(await lab.container()), bridge, v4: `${v4}.${number}`, v6: `${v6}:${number}` };
  const port = `${bridge}pod${number}`;
  await plugPod(lab, pod, { bridge, port, gateways: { v4: `${v4}.1`, v6: `${v6}:1` } });
  for (const device of [port, bridge]) await untilUp(lab.host, device);
  return pod;
}

/** Whether one echo request is answered: for those that should not be. */
export async function reaches(
  lab: Lab,
  from: Namespace,
  address: string,
  ...options: string[]
): Promise<boolean> {
  const argv = ['ping', '-n', '-q', '-c', '1', '-W', '1', ...options, address];
  return (await lab.run(from, argv)).exitCode === 0;
}

/** Runs commands of nft as one transaction. */
export async function nft(lab: Lab, ...commands: string[]): Promise<void> {
  const stdin = commands.map(command => `${command}\n`).join('');
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0, stderr: '' });
}

/** The result of a plugin that connected the pod. */
export function prevResultOf(pod: Pod, version: string = LATEST_SPEC_VERSION): object {
  const family = version < '1.0.0' ? [{ version: '4' }, { version: '6' }] : [{}, {}];
  return {
    cniVersion: version,
    interfaces: [{ name: pod.bridge }, { name: 'port' }, { name: 'eth0', sandbox: pod.path }],
    ips: [
      { ...family[0], address: `${pod.v4}/24`, interface: 2 },
      { ...family[1], address: `${pod.v6}/64`, interface: 2 },
    ],
  };
}

/** A request to the plugin. */
export function confOf(
  { version = LATEST_SPEC_VERSION, network = 'podnet', conf }: Call,
  more: object = {},
): object {
  return { cniVersion: version, name: network, type: 'firewall', ...more, ...conf };
}

/** Calls ADD. */
export function add(lab: Lab, pod: Pod, call: Call = {}): Promise<PluginReply> {
  const prevResult = 'prevResult' in call ? call.prevResult : prevResultOf(pod, call.version);
  const env = { ...NO_BUS, ...call.env };
  return lab.plugin('firewall', { command: 'ADD', container: pod, conf: confOf(call), prevResult, env });
}

/** Calls CHECK. */
export function check(lab: Lab, pod: Pod, call: Call = {}): Promise<PluginReply> {
  const prevResult = call.prevResult ?? prevResultOf(pod, call.version);
  return lab.plugin('firewall', {
    command: 'CHECK',
    container: pod,
    conf: confOf(call),
    prevResult,
    env: { ...NO_BUS, ...call.env },
  });
}

/** Calls DEL, without the result of ADD unless it is given. */
export function del(lab: Lab, pod: Pod, call: Call = {}): Promise<PluginReply> {
  return lab.plugin('firewall', {
    command: 'DEL',
    container: pod,
    conf: confOf(call),
    ...('prevResult' in call ? { prevResult: call.prevResult } : {}),
    env: { ...NO_BUS, ...call.env },
  });
}

/** Calls GC with the attachments of these pods as valid ones. */
export function gc(lab: Lab, valid: Pod[], env: Call['env'] = NO_BUS): Promise<PluginReply> {
  const attachments = valid.map(({ id }) => ({ containerID: id, ifname: 'eth0' }));
  const conf = confOf({}, { 'cni.dev/valid-attachments': attachments });
  return lab.plugin('firewall', { command: 'GC', conf, env });
}

/** Calls STATUS. */
export function status(lab: Lab, conf: object = {}, env: Call['env'] = NO_BUS): Promise<PluginReply> {
  return lab.plugin('firewall', { command: 'STATUS', conf: confOf({ conf }), env });
}

/** The elements of every non-empty set. */
export async function elementsOf(lab: Lab): Promise<Record<string, Row[]>> {
  const rows = await lab.nft(lab.host, 'list', 'ruleset');
  const sets = rows
    .flatMap(row => row.map ?? row.set ?? [])
    .filter(set => set.table === 'catena_firewall' && set.elem);
  return Object.fromEntries(sets.map(set => [set.name, set.elem]));
}

/** User-defined chains and all rules, as printed by `iptables -S`. */
export async function rulesOf(lab: Lab, tool = 'iptables'): Promise<string[]> {
  const { stdout } = await lab.run(lab.host, [tool, '-S']);
  return stdout.split('\n').filter(line => /^-[AN]/.test(line));
}
