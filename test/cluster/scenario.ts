// What is a scenario, and what are scenarios made of?

import type { Lab, Namespace, Row } from '../helpers/netns.ts';
import { awaiting } from './awaiting.ts';
import { type Cluster, isReady } from './cluster.ts';
import { POD_IMAGE } from './images.ts';

/** Something that happens to a cluster. It throws if what it sees is wrong. */
export interface Scenario {
  /** In lower case: words of the command line select by it. */
  readonly name: string;
  /** @param saw is told what the report says */
  play(cluster: Cluster, namespace: string, saw: (line: string) => void, asked: FiguresAsked): Promise<void>;
  /** Devices that rightly remain: bridges of networks, which their last pod leaves. */
  readonly leaves?: RegExp;
  /** Whether it takes Catena away, after which nodes hold something else. */
  readonly endsCatena?: boolean;
}

/** What the command line wants of the figures. */
export interface FiguresAsked {
  readonly runs: number;
  /** How many start and stop at a time, for one measurement each. */
  readonly pods: readonly number[];
  /** Texts of which the name of a side has one. */
  readonly sides: readonly string[];
  /** Pods of the scenario with devices, moves of the one with machines; by default as many as take two minutes. */
  readonly count?: number;
}

/** Of a container that is asked all the time: with no share of the processors it answers when the others have had theirs. */
export const ANSWERING = { requests: { cpu: '200m' } } as const;

/** A pod that answers at port 80 with its name, and at once ends when it is asked to. */
export function pod(name: string, more: { metadata?: Row; spec?: Row; container?: Row } = {}): Row {
  return { apiVersion: 'v1', kind: 'Pod', metadata: { name, ...more.metadata }, spec: podSpec(more) };
}

/** The same, as often as wanted. */
export function deployment(name: string, replicas: number, more: Parameters<typeof pod>[1] = {}): Row {
  const labels = { app: name };
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: { metadata: { labels, ...more.metadata }, spec: podSpec(more) },
    },
  };
}

const SERVE =
  'busybox mkdir -p /www; busybox hostname > /www/index.html; exec busybox httpd -f -p 80 -h /www';

function podSpec({ spec, container }: { spec?: Row; container?: Row }): Row {
  return {
    // With 0 the API server forgets a pod at once, as with --force.
    terminationGracePeriodSeconds: 1,
    dnsPolicy: 'Default',
    automountServiceAccountToken: false,
    containers: [{ name: 'web', image: POD_IMAGE, command: ['sh', '-c', SERVE], ...container }],
    ...spec,
  };
}

/** Starts a pod on each node that answers at the node's address, as no plugin touches it. @returns the addresses */
export async function startControls({ kubectl, nodes }: Cluster, namespace: string): Promise<string[]> {
  const wanted = nodes.map(({ place }) =>
    pod(`control-${place.name}`, {
      metadata: { namespace },
      spec: { nodeName: place.name, hostNetwork: true },
      container: { resources: ANSWERING },
    }),
  );
  await kubectl.apply(...wanted);
  await awaiting('the pods with the network of a node', 120, async () => {
    const pods = await kubectl.list('pods', '-n', namespace);
    return pods.filter(one => one.spec.hostNetwork && isReady(one)).length === nodes.length;
  });
  return nodes.map(({ place }) => place.address);
}

/** Waits until that many pods of a namespace are ready, and no other is there. */
export function untilPods(
  { kubectl }: Cluster,
  namespace: string,
  count: number,
  seconds = 120,
): Promise<Row[]> {
  return awaiting(`${count} pods in ${namespace}`, seconds, async () => {
    const pods = await kubectl.list('pods', '-n', namespace);
    return pods.length === count && pods.every(isReady) && pods;
  });
}

/** What a program of the node prints in the network namespace of a pod. */
export async function inPod(cluster: Cluster, pod: Row, ...argv: string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await cluster.wire.lab.run(await netnsOf(cluster, pod), argv);
  if (exitCode === 0) return stdout.trim();
  throw new Error(`Cannot run "${argv.join(' ')}" in ${pod.metadata.name}: ${stderr}${stdout}`);
}

/** What a server answers to a pod, within two seconds; undefined if nothing. */
export async function fetchFrom(cluster: Cluster, pod: Row, at: string): Promise<string | undefined> {
  return answerOf(cluster.wire.lab, await netnsOf(cluster, pod), at);
}

/** The network namespace of a ready pod. */
export async function netnsOf({ nodes }: Cluster, { metadata, spec, status }: Row): Promise<Namespace> {
  const node = nodes.find(({ place }) => place.name === spec.nodeName);
  if (node === undefined) throw new Error(`Cannot find the node of ${metadata.name}`);
  return node.machine.netnsOf(await node.pidOf(String(status.containerStatuses?.[0]?.containerID)));
}

/** Throws if something is not as it must be. */
export function must(isSo: boolean, otherwise: string): void {
  if (!isSo) throw new Error(otherwise);
}

/** What the server at an address and port answers to a program in a namespace, within two seconds; undefined if nothing. */
export async function answerOf(lab: Lab, from: Namespace, at: string): Promise<string | undefined> {
  // Not wget of the static busybox, which some machines' name service has crash.
  const argv = ['curl', '--silent', '--fail', '--max-time', '2', `http://${at}/`];
  const { exitCode, stdout } = await lab.run(from, argv);
  return exitCode === 0 ? stdout.trim() : undefined;
}

/** Waits until the right pod answers: a program listens a moment after its container runs. @throws Error with the last answer */
export async function untilAnswers(
  question: string,
  wanted: string,
  ask: () => Promise<string | undefined>,
): Promise<void> {
  let last: string | undefined;
  const right = awaiting(wanted, 30, async () => {
    last = await ask();
    return last === wanted;
  });
  await right.catch(() => {
    throw new Error(`${question}: ${last ?? 'no answer'} after 30 s, not ${wanted}`);
  });
}

/** Waits for the event by which kubelet tells why a pod has no sandbox. */
export function untilRefused({ kubectl }: Cluster, namespace: string, name: string): Promise<string> {
  return awaiting(`${name} to be refused`, 60, async () => {
    const events = await kubectl.list(
      'events',
      '-n',
      namespace,
      `--field-selector=involvedObject.name=${name}`,
    );
    return events.find(({ reason }) => reason === 'FailedCreatePodSandBox')?.message as string | undefined;
  });
}
