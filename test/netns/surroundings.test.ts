// Do our pods and the programs of others keep what they were promised, whatever others have set up before, at random?
//
// Each seed draws a node (kube-proxy, exemptions from NAT, Docker's FORWARD policy, IPv6 off by default), lists and mappings, and asks who
// answers where. More of them, or others: CATENA_SURROUNDINGS_SEED=5 CATENA_SURROUNDINGS_ROUNDS=300.

import { expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import {
  type Container,
  type Lab,
  type Namespace,
  type Outside,
  untilUp,
  withHost,
} from '../helpers/netns.ts';
import { answers } from '../helpers/pods.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { converse, echo, startServer } from '../helpers/traffic.ts';
import { Random } from '../storm/random.ts';

const SERVICE = '10.96.0.1';
const FAR = '192.0.2.9';
const FIRST = Number(process.env.CATENA_SURROUNDINGS_SEED ?? 1);
const ROUNDS = Number(process.env.CATENA_SURROUNDINGS_ROUNDS ?? 4);

/** What others did, and what we are asked for. */
interface Scene {
  /** What their port 8081 of the node, and their port 8080 of a Service's address, are made of. */
  readonly proxy: 'nothing' | 'nat' | 'ipvs';
  readonly isExempt: boolean;
  readonly isClosed: boolean;
  readonly isWithoutIpv6: boolean;
  readonly isDual: boolean;
  /** Of the mapping; empty: any address. */
  readonly hostIP: string;
  readonly policy: 'open' | 'same-bridge';
  /** The result names another interface of the host first, as with VLANs. */
  readonly isBehindOther: boolean;
}

interface Pod {
  readonly container: Container;
  readonly v4: string;
  readonly said: string;
  del(): Promise<number[]>;
}

describeRoot(
  'what others set up first',
  () => {
    test(
      'stands, and our pods have all that they were promised beside it',
      async () => {
        for (let seed = FIRST; seed < FIRST + ROUNDS; seed++)
          await withHost(async lab => {
            const scene = drawScene(new Random(seed));
            expect({ seed, scene, problems: await play(lab, scene) }).toEqual({ seed, scene, problems: [] });
          });
      },
      deadline(120_000 * ROUNDS),
    );
  },
  requires('nft', 'iptables'),
);

function drawScene(random: Random): Scene {
  const isDual = random.chance(0.5);
  return {
    proxy: random.pick(['nothing', 'nat', 'ipvs']),
    isExempt: random.chance(0.5),
    isClosed: random.chance(0.5),
    isWithoutIpv6: random.chance(0.3),
    isDual,
    hostIP: random.pick(['', '', '::1', ...(isDual ? [] : ['2001:db8::1'])]),
    policy: random.pick(['open', 'same-bridge']),
    isBehindOther: random.chance(0.5),
  };
}

async function play(lab: Lab, scene: Scene): Promise<string[]> {
  const problems: string[] = [];
  const must = (isSo: boolean, what: string): void => void (isSo || problems.push(what));
  const outside = await lab.outside();
  await lab.ip(outside, 'addr', 'add', `${FAR}/32`, 'dev', 'lo');
  await lab.ip(outside, 'route', 'add', '10.88.0.0/15', 'via', outside.hostAddress.v4);
  await lab.ip(lab.host, 'route', 'add', FAR, 'via', outside.address.v4);
  await lab.sysctl(lab.host, 'net/netfilter/nf_conntrack_tcp_loose', 0);
  await lab.ip(lab.host, 'link', 'add', 'trunk', 'type', 'bridge');
  await arrange(lab, scene, outside);
  const [pod, neighbour] = [await attach(lab, scene, 'red', 88), await attach(lab, scene, 'blue', 89)];
  if (typeof pod === 'string' || typeof neighbour === 'string') return [`${pod}; ${neighbour}`];
  const accepts = (ns: Namespace, device: string) => lab.sysctl(ns, `net/ipv6/conf/${device}/accept_ra`);
  if (!scene.isWithoutIpv6)
    must((await accepts(lab.host, 'heard')) === (scene.isDual ? '2' : '1'), 'the host loses its IPv6 router');
  for (const { container } of [pod, neighbour])
    must((await accepts(container, 'eth0')) === '0', 'a stranger on the link routes a pod');
  for (const [ns, port] of [
    [pod.container, 80],
    [pod.container, 81],
    [neighbour.container, 80],
    [outside, 80],
  ] as const)
    await startServer(lab, ns, { protocol: 'tcp', port });
  const node = outside.hostAddress.v4;
  const local = async (from: Namespace, address: string, port: number) =>
    (await echo(lab, from, { protocol: 'tcp', address, port }))?.local;
  const seen = async (address: string) =>
    (await echo(lab, pod.container, { protocol: 'tcp', address, port: 80 }))?.peer;
  if (scene.hostIP === '')
    must((await local(outside, node, 8080)) === pod.v4, 'published, and not reachable');
  else must(pod.said !== '', `a mapping for ${scene.hostIP} does nothing, and nothing is said`);
  if (scene.proxy === 'nat')
    must((await local(outside, node, 8081)) === SERVICE, 'another has the port of a Service');
  if (scene.proxy === 'ipvs')
    for (const from of [neighbour.container, lab.host])
      must((await local(from, SERVICE, 8080)) === SERVICE, `another answers for a Service to ${from.name}`);
  if (scene.isClosed)
    must(!(await answers(lab, outside, 'tcp', pod.v4, 81)), 'reachable though never published');
  else {
    must(
      (await seen(outside.address.v4)) === (scene.isExempt ? pod.v4 : node),
      'what is exempt, or is not, has another source',
    );
    must((await seen(FAR)) === node, 'not masqueraded');
    const count = await strays(lab, pod.container, outside);
    must(count === 0, 'packets of no connection leave with the address of a pod');
  }
  const isShut = scene.policy === 'same-bridge';
  must(
    (await answers(lab, neighbour.container, 'tcp', pod.v4, 80)) !== isShut,
    'another bridge reaches what it should not, or does not',
  );
  for (const one of [pod, neighbour])
    must(
      (await one.del()).every(code => code === 0),
      'DEL fails',
    );
  const { stdout } = await lab.run(lab.host, ['nft', 'list', 'ruleset']);
  must(!/"catena:\w+\//.test(stdout), `something is left: ${stdout.match(/.*"catena:\w+\/.*/)}`);
  return problems;
}

/** What is there before the first pod. */
async function arrange(lab: Lab, scene: Scene, outside: Outside): Promise<void> {
  const rule = (table: string, ...args: string[]) => ok(lab, ['iptables', '-t', table, ...args]);
  if (scene.isWithoutIpv6) await lab.sysctl(lab.host, 'net/ipv6/conf/default/disable_ipv6', 1);
  // The host has its IPv6 router from an advertisement there, as long as it is no router itself.
  await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 0);
  await lab.ip(lab.host, 'link', 'add', 'heard', 'up', 'type', 'veth', 'peer', 'name', 'router');
  if (!scene.isWithoutIpv6) await lab.sysctl(lab.host, 'net/ipv6/conf/heard/accept_ra', 1);
  if (scene.isClosed) await rule('filter', '-P', 'FORWARD', 'DROP');
  const { v4 } = outside.hostAddress;
  if (scene.proxy === 'nat')
    // Two host ports of pods have the number of a Service.
    await rule(
      'nat',
      '-A',
      'PREROUTING',
      '-d',
      v4,
      '-p',
      'tcp',
      '--dport',
      '8081',
      '-j',
      'DNAT',
      '--to',
      `${SERVICE}:8080`,
    );
  if (scene.proxy !== 'nothing') {
    await lab.ip(lab.host, 'link', 'add', 'kube-ipvs0', 'type', 'bridge');
    await lab.ip(lab.host, 'addr', 'add', `${SERVICE}/32`, 'dev', 'kube-ipvs0');
    await startServer(lab, lab.host, { protocol: 'tcp', port: 8080, address: SERVICE });
  }
  if (scene.proxy === 'ipvs') {
    await rule('nat', '-N', 'KUBE-SERVICES');
    await rule('nat', '-A', 'KUBE-SERVICES', '-d', SERVICE, '-p', 'tcp', '--dport', '8080', '-j', 'ACCEPT');
    for (const chain of ['PREROUTING', 'OUTPUT']) await rule('nat', '-A', chain, '-j', 'KUBE-SERVICES');
  }
  if (scene.isExempt)
    await rule(
      'nat',
      '-A',
      'POSTROUTING',
      '-s',
      '10.88.0.0/16',
      '-d',
      `${outside.address.v4}/32`,
      '-j',
      'ACCEPT',
    );
}

/** A pod of a network of its own, by bridge, portmap and firewall; or why there is none. */
async function attach(lab: Lab, scene: Scene, name: string, second: number): Promise<Pod | string> {
  const container = await lab.container();
  const ranges = [
    [{ subnet: `10.${second}.0.0/24` }],
    ...(scene.isDual ? [[{ subnet: `fd${second}::/64` }]] : []),
  ];
  const { hostIP } = scene;
  const isFirst = name === 'red';
  const mappings = [
    {
      hostPort: isFirst ? 8080 : 8090,
      containerPort: 80,
      protocol: 'tcp',
      ...(isFirst && hostIP ? { hostIP } : {}),
    },
    ...(isFirst ? [{ hostPort: 8081, containerPort: 80, protocol: 'tcp' }] : []),
  ];
  const bridge = `br-${name}`;
  const links = [
    {
      type: 'bridge',
      bridge,
      isDefaultGateway: true,
      ipMasq: true,
      ipam: { type: 'host-local', dataDir: lab.tmp, ranges },
    },
    { type: 'portmap', runtimeConfig: { portMappings: mappings } },
    { type: 'firewall', ingressPolicy: scene.policy },
  ];
  let prevResult: Result | undefined;
  let said = '';
  const call = (
    command: 'ADD' | 'CHECK' | 'DEL',
    { type, ...more }: (typeof links)[number],
    before?: Result,
  ) => {
    const conf = { cniVersion: '1.1.0', name, type, ...more };
    const given = type === 'firewall' && before && scene.isBehindOther ? behindOther(before, bridge) : before;
    return lab.plugin(type, { command, conf, container, ...(given ? { prevResult: given } : {}) });
  };
  for (const link of links) {
    const { exitCode, error, result, stderr } = await call('ADD', link, prevResult);
    if (exitCode !== 0) return `ADD of ${link.type}: ${error?.msg}`;
    if (link.type === 'portmap') said = stderr;
    prevResult ??= result as Result;
  }
  await untilUp(lab.host, bridge);
  for (const link of links) {
    const { exitCode, error } = await call('CHECK', link, prevResult);
    if (exitCode !== 0) return `CHECK of ${link.type}: ${error?.msg}`;
  }
  const v4 = prevResult?.ips?.[0]?.address.split('/')[0] ?? '';
  const del = async () => {
    const codes: number[] = [];
    for (const link of links.toReversed()) codes.push((await call('DEL', link, prevResult)).exitCode);
    return codes;
  };
  return { container, v4, said, del };
}

interface Result {
  readonly interfaces: readonly object[];
  readonly ips?: readonly { readonly address: string }[];
}

/** As with VLANs: the port that routes comes last. */
function behindOther({ interfaces, ...result }: Result, bridge: string): Result {
  return { ...result, interfaces: [{ name: 'trunk' }, ...interfaces.slice(1), { name: bridge }] };
}

/** Packets with the pod's address that the outside gets once the node has forgotten their connection. */
async function strays(lab: Lab, pod: Namespace, outside: Outside): Promise<number> {
  const rules = [
    'table ip seen { counter fins { }',
    'chain pre { type filter hook prerouting priority -310;',
  ];
  const stdin = `${[...rules, 'ip saddr 10.88.0.0/15 tcp flags & fin == fin counter name fins } }'].join('\n').replaceAll('{ ', '{\n').replaceAll(' }', '\n}')}\n`;
  const timeout = 'net/netfilter/nf_conntrack_tcp_timeout_established';
  await lab.sysctl(lab.host, timeout, 1);
  for (const ns of [outside, lab.host])
    expect(await lab.run(ns, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0, stderr: '' });
  const count = async (ns: Namespace) => {
    const rows = await lab.nft(ns, 'list', 'counter', 'ip', 'seen', 'fins');
    return rows.flatMap(({ counter }) => (counter ? [counter.packets] : []))[0] ?? 0;
  };
  const talk = await converse(lab, { from: pod, to: outside, listen: 82, address: FAR, port: 82 });
  await Bun.sleep(1_100);
  await talk.end();
  const giveUpAt = performance.now() + deadline(5_000);
  while ((await count(lab.host)) === 0 && performance.now() < giveUpAt) await Bun.sleep(50);
  const found = await count(outside);
  await lab.sysctl(lab.host, timeout, 432_000);
  return found;
}

async function ok(lab: Lab, argv: string[]): Promise<void> {
  expect(await lab.run(lab.host, argv)).toMatchObject({ exitCode: 0 });
}
