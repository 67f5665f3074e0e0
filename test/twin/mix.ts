// How is one cell of the swap matrix run, and what is observed?

import { normalise } from '../../src/lab/compare/differ.ts';
import { mixedBinDir, type RunChain, writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { type Container, createLab, type Lab, type Outside, type Row } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';
import { connectLan, LAN } from './lan.ts';
import { isOnLan, listOf, type Mix, mapsPorts } from './mixes.ts';
import { observeFiles, observeNamespace } from './observe.ts';
import { holderOf } from './table.ts';

/** The outcome of a step: the chain's reply, and everything observed afterwards. */
export interface MixOutcome {
  readonly label: string;
  readonly failed: boolean;
  readonly seen: Row;
}

/** A ground with two pods and a namespace beyond the host. */
export interface MixGround {
  readonly lab: Lab;
  readonly one: Container;
  readonly peer: Container;
  readonly outside: Outside;
}

/** The one mapped host port, and the pod's port that it is forwarded to. */
export const PORTS = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };

/** Attaches a pod and its peer, tries the traffic, runs CHECK and deletes both; observations use common names. */
export async function playMix(mix: Mix): Promise<MixOutcome[]> {
  return await onMixGround(async ground => {
    const { lab, outside } = ground;
    if (isOnLan(mix)) await connectLan(lab, outside);
    const lists = { peer: listOf(mix, lab, 'peer'), one: listOf(mix, lab) };
    const run = (verb: string, pod: 'one' | 'peer', options: RunChain = {}) => {
      return writeChain(lab, lists[pod]).run(verb, ground[pod], { binDir, ...options });
    };
    const binDir = mixedBinDir(lab, REFERENCE_BIN_DIR, ...mix.theirs);
    const outcomes: MixOutcome[] = [];
    const take = async (label: string, done: Finished, look: () => Promise<Row> = async () => ({})) => {
      const failed = done.exitCode !== 0;
      const result = failed || done.stdout === '' ? undefined : JSON.parse(done.stdout);
      const error = failed ? done.stderr.split('\n')[0] : undefined;
      outcomes.push({ label, failed, seen: { reply: { error, result }, ...(await look()) } });
    };
    await take('ADD of the peer', await run('add', 'peer'));
    await take('ADD', await run('add', 'one', mapsPorts(mix) ? { cap: PORTS } : {}), async () => {
      return { ...(await observeMix(ground)), traffic: await trafficOf(ground, mix) };
    });
    await take('CHECK', await run('check', 'one'));
    await take('CHECK of the peer', await run('check', 'peer'));
    await take('DEL', await run('del', 'one'));
    await take('DEL of the peer', await run('del', 'peer'), async () => {
      return { ...(await observeMix(ground)), left: await leftBy(ground) };
    });
    return normalise(outcomes, JSON.stringify(lists), commonNames(ground), holderOf);
  });
}

/** Runs the body with a ground that is removed afterwards, whatever happens. */
export async function onMixGround<T>(body: (ground: MixGround) => Promise<T>): Promise<T> {
  const lab = await createLab();
  try {
    const one = { ...(await lab.container()), id: 'twin-1' };
    const peer = { ...(await lab.container()), id: 'twin-2' };
    const outside = await lab.outside();
    for (const ns of [lab.host, one, peer]) {
      // Duplicate address detection and router solicitation take seconds and end at a random moment.
      await lab.sysctl(ns, 'net/ipv6/conf/default/dad_transmits', 0);
      await lab.sysctl(ns, 'net/ipv6/conf/default/router_solicitation_delay', 0);
    }
    return await body({ lab, one, peer, outside });
  } finally {
    await lab.close();
  }
}

/** What replies to what: gateway and peer, and the pod behind the mapped port with the address that it saw. */
export async function trafficOf(
  { lab, one, outside }: MixGround,
  mix: Pick<Mix, 'families' | 'chain'>,
  peerHas = 2,
): Promise<Row> {
  const dual = mix.families === 'dual';
  const server = await startServer(lab, one, { protocol: 'tcp', port: 80 });
  const mapped = async (address: string) => {
    const reply = await echo(lab, outside, { protocol: 'tcp', address, port: 8080 });
    return reply ? `answered ${reply.peer.replace('::ffff:', '')}` : 'no answer';
  };
  const { v4, v6 } = outside.hostAddress;
  const hosts = [1, peerHas];
  const addresses = hosts.flatMap(n => [`10.88.0.${n}`, ...(dual ? [`fd88::${n}`] : [])]);
  const pings = addresses.map(async address => [`ping ${address}`, await ping(lab, one, address)] as const);
  const doors = mapsPorts(mix) ? [v4, ...(dual ? [v6] : [])] : [];
  const ports = doors.map(async address => [`tcp ${address}`, await mapped(address)]);
  const answers = Object.fromEntries(await Promise.all([...pings, ...ports]));
  await server.stop();
  return answers;
}

/** Names of everything that still belongs to one of the pods after both are gone. */
export async function leftBy({ lab, one, peer }: MixGround): Promise<string[]> {
  const links = await lab.ip(lab.host, 'link', 'show');
  const devices = links.filter(({ linkinfo }) => ['veth', 'ifb', 'macvlan'].includes(linkinfo?.info_kind));
  const ofHost = ['outside0', LAN.master, ...Object.values(LAN.moved)];
  const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout.split('\n');
  const ofPods = rules.filter(line => /10\.88\.0\.[23]\b|fd88::[23]\b|twin-[12]|8080/.test(line));
  const inside = await Promise.all([one, peer].map(pod => lab.ip(pod, 'link', 'show')));
  const files = ['leases', 'tuning', 'cni', 'state'].flatMap(dir => {
    return Object.keys(observeFiles(`${lab.tmp}/${dir}`)).map(name => `${dir}/${name}`);
  });
  const ofAttachments = files.filter(name => /\/(10\.88|fd88|twin-|podnet-)/.test(name));
  return [
    ...devices.filter(({ ifname }) => !ofHost.includes(ifname)).map(({ ifname }) => ifname),
    ...inside.flat().flatMap(({ ifname }) => (ifname === 'lo' ? [] : [ifname])),
    ...ofPods.map(line => line.trim()),
    ...ofAttachments,
  ];
}

/** Both sides, and the files of plugins; the runner's own files only by name. */
async function observeMix({ lab, one }: MixGround): Promise<Row> {
  const [host, pod] = await Promise.all([
    observeNamespace(lab, lab.host, false),
    observeNamespace(lab, one, false),
  ]);
  const files = ['leases', 'run', 'tuning', 'cni', 'state'].flatMap(dir => {
    return Object.entries(observeFiles(`${lab.tmp}/${dir}`)).map(([name, text]) => {
      const isOurOwn = ['run', 'cni', 'state'].includes(dir) || /\/\.catena-/.test(name);
      // The name of a lock contains the inode of a namespace, an index contains the time.
      return [
        `${dir}/${name.replace(/-\d+(?=[-.])|(?<=\/)\d+-(?=[\da-f]{2}:)/, '')}`,
        isOurOwn ? 'there' : text,
      ] as const;
    });
  });
  return { host, 'twin-1': pod, files: Object.fromEntries(files) };
}

function commonNames({ lab, one, peer, outside }: MixGround): ReadonlyMap<string, string> {
  const namespaces = [one, peer].map(({ path, id }) => [path, id] as const);
  return new Map([[lab.tmp, '{tmp}'], [lab.host.path, '{host}'], ...namespaces, [outside.path, '{outside}']]);
}
