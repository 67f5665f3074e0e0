// What are rows made of: entries of chains, grounds to start from, and questions?

import fs from 'node:fs';
import type { Row as Json, Lab, Namespace, Outside } from '../../helpers/netns.ts';
import { echo, startServer } from '../../helpers/traffic.ts';
import type { Ground, Probe } from '../row.ts';

/** A bridge plugin with its own bridge name. */
export const BRIDGE: Json = { type: 'bridge', bridge: 'br0' };

/** host-local, without its ranges. */
export const HOST_LOCAL: Json = { type: 'host-local', dataDir: '{tmp}/leases' };

/** Range sets. */
export const V4: Json[] = [{ subnet: '10.88.0.0/24' }];
export const V6: Json[] = [{ subnet: 'fd88::/64' }];

/** host-local with an address of each family. */
export function both(): Json {
  return { ...HOST_LOCAL, ranges: [V4, V6] };
}

/** A bridge plugin with IPAM and options. */
export function bridged(ipam: Json, options: Json = {}): Json {
  return { ...BRIDGE, ...options, ipam };
}

/** Runs commands of `ip`, in the fake host by default. */
export async function ipTool(ground: Ground, ...commands: (string | Namespace)[]): Promise<void> {
  const ns = commands.find(command => typeof command === 'object') ?? ground.lab.host;
  const lines = commands.filter(command => typeof command === 'string').join('\n');
  const { exitCode, stderr } = await ground.lab.run(ns, ['ip', '-batch', '-'], { stdin: `${lines}\n` });
  if (exitCode !== 0) throw new Error(`Cannot prepare "${lines}": ${stderr}`);
}

/** Creates `br0` beforehand, down, with options of `ip link add` and addresses. */
export function bridgeExists(options: string, addresses: readonly string[]) {
  return (ground: Ground): Promise<void> => {
    const added = addresses.map(address => `addr add ${address} dev br0`);
    return ipTool(ground, `link add br0 ${options} type bridge`, ...added);
  };
}

/** Makes the host forward beforehand. */
export async function forwarding({ lab }: Ground): Promise<void> {
  await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
  await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
}

/** A resolver configuration with everything in it. */
export async function resolvConf({ lab }: Ground): Promise<void> {
  const lines = [
    ...['# a comment', '; another', 'nameserver 192.0.2.1', 'nameserver 2001:db8::53', 'domain one.test'],
    ...[
      'domain two.test',
      'search three.test four.test',
      'search five.test',
      'options ndots:3 edns0',
      'sortlist',
    ],
  ];
  fs.writeFileSync(`${lab.tmp}/resolv.conf`, `${lines.join('\n')}\n`);
}

/** Creates a namespace beyond the host, with an echo server on TCP port 7; the host forwards. */
export async function outside(ground: Ground): Promise<void> {
  const beyond = await ground.lab.outside();
  outsides.set(ground.lab, beyond);
  await forwarding(ground);
  await startServer(ground.lab, beyond, { protocol: 'tcp', port: 7 });
}

/** The namespace that {@link outside} created. */
export function outsideOf({ lab }: Ground): Outside {
  const beyond = outsides.get(lab);
  if (beyond === undefined) throw new Error('Cannot probe from outside: the row does not prepare it');
  return beyond;
}

/** Which addresses of container 1 does a server beyond the host see? */
export const SEEN_OUTSIDE: Probe = {
  probe: 'address seen outside',
  async ask(ground) {
    const { v4, v6 } = outsideOf(ground).address;
    const seen = async (address: string) => {
      const reply = await echo(ground.lab, ground.containers[0], { protocol: 'tcp', address, port: 7 });
      return reply?.peer ?? 'no answer';
    };
    return { v4: await seen(v4), v6: await seen(v6) };
  },
};

/** Container 1 echoes on TCP port 80 and UDP port 53. */
export const SERVE: Probe = {
  probe: 'serve',
  async ask({ lab, containers: [one] }) {
    await startServer(lab, one, { protocol: 'tcp', port: 80 });
    await startServer(lab, one, { protocol: 'udp', port: 53 });
  },
};

/** Which client addresses does container 1 see when ports of the host are queried, from everywhere at once? */
export function mapped(ports: { tcp?: number; udp?: number }, label = 'seen through mapped ports'): Probe {
  return {
    probe: label,
    async ask(ground) {
      const questions = routesToPorts(ground).flatMap(({ name, from, address }) =>
        (['tcp', 'udp'] as const).flatMap(protocol => {
          const port = ports[protocol];
          return port === undefined ? [] : [{ name: `${protocol} ${name}`, from, protocol, address, port }];
        }),
      );
      const answers = questions.map(async ({ name, from, ...target }) => {
        const reply = await echo(ground.lab, from, { ...target, timeoutMs: DEADLINE_MS });
        return [name, reply?.peer ?? 'no answer'];
      });
      return Object.fromEntries(await Promise.all(answers));
    },
  };
}

// Longer than a busy machine needs: a client that waits this long gets no reply at all.
const DEADLINE_MS = 3_000;

function routesToPorts(ground: Ground): { name: string; from: Namespace; address: string }[] {
  const { lab, containers } = ground;
  const beyond = outsideOf(ground);
  const froms = { outside: beyond, host: lab.host, itself: containers[0], neighbour: containers[1] };
  const remote = Object.entries(froms).flatMap(([name, from]) =>
    Object.entries(beyond.hostAddress).map(([family, address]) => {
      return { name: `from ${name} to ${family}`, from, address };
    }),
  );
  return [...remote, { name: 'from host to localhost', from: lab.host, address: '127.0.0.1' }];
}

const outsides = new WeakMap<Lab, Outside>();
