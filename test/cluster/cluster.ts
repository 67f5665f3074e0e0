// How does a cluster start and end, and what can scenarios do with it?

import fs from 'node:fs';
import os from 'node:os';
import { nodePlace } from './addresses.ts';
import { awaiting } from './awaiting.ts';
import { account } from './certificates.ts';
import { type ControlPlane, startControlPlane } from './control-plane.ts';
import { catenaImage, type Image, podImage } from './images.ts';
import type { Kubectl } from './kubectl.ts';
import { type Node, type Runtime, type Site, startNode } from './node.ts';
import { findPrograms, type Programs } from './programs.ts';
import { makeWire, type Wire } from './wire.ts';

/** A cluster. */
export interface Cluster {
  readonly wire: Wire;
  readonly control: ControlPlane;
  readonly nodes: readonly Node[];
  readonly kubectl: Kubectl;
  readonly programs: Programs;
  /** Directory of logs, which the cluster leaves. */
  readonly logs: string;
  /** The image of Catena, which all nodes have. */
  readonly image: Image;
  /** Imports an archive of an image on all nodes, and on those that join later: it has to stay. */
  provide(archive: string): Promise<void>;
  /** Starts one more node, beyond a router, which the caller closes. */
  join(runtime?: Runtime): Promise<Node>;
  close(): Promise<void>;
}

/** Who is told how far it is. */
export type Say = (line: string) => void;

const PROXY_ROLE = {
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'ClusterRoleBinding',
  metadata: { name: 'kube-proxy' },
  roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'system:node-proxier' },
  subjects: [{ kind: 'User', apiGroup: 'rbac.authorization.k8s.io', name: 'system:kube-proxy' }],
};

/** Starts one whose nodes have no network yet. */
export async function startCluster(
  options: { readonly nodes: number; readonly logs: string; readonly home: string },
  say: Say,
): Promise<Cluster> {
  const programs = findPrograms();
  // What an earlier cluster left there would be read as this one's.
  for (const old of fs.globSync(`${options.logs}/{node*.log,kube-*.log,etcd-*.log,failed-*,scenarios.md}`))
    fs.rmSync(old, { recursive: true });
  fs.mkdirSync(options.logs, { recursive: true });
  const work = fs.mkdtempSync(`${os.tmpdir()}/cat-${process.pid}-images-`);
  const closing: (() => Promise<void>)[] = [];
  const close = async (): Promise<void> => {
    for (const step of closing.splice(0).reverse()) await step();
    fs.rmSync(work, { recursive: true, force: true });
  };
  try {
    const wire = await makeWire();
    closing.push(() => wire.lab.close());
    // One more, for a node that joins later.
    const places = Array.from({ length: options.nodes + 1 }, (_, i) => nodePlace(i + 1, i === options.nodes));
    const proxy = account('system:kube-proxy');
    const accounts = places.map(({ name }) => account(`system:node:${name}`, 'system:nodes'));
    say('control plane');
    const control = await startControlPlane(wire, programs, [proxy, ...accounts], options.logs);
    closing.push(() => control.close());
    await control.kubectl.apply(PROXY_ROLE);
    say('images');
    const [pods, image] = [await podImage(work), await catenaImage(work, options.home)];
    const archives = [pods, image.archive];
    const site: Site = { wire, programs, control, places, proxy, logs: options.logs };
    const start = async (i: number, runtime?: Runtime): Promise<Node> => {
      const [place, own] = [places[i], accounts[i]];
      if (place === undefined || own === undefined) throw new Error(`Cannot start a node ${i + 1}`);
      const node = await startNode(site, place, own, runtime);
      try {
        for (const archive of archives) await node.import(archive);
        for (const service of ['kubelet', 'kube-proxy'] as const) await node.start(service);
        return node;
      } catch (error) {
        await node.close();
        throw error;
      }
    };
    say('nodes');
    const starts = Array.from({ length: options.nodes }, (_, i) => start(i));
    // Those that started are closed even if another did not.
    for (const one of starts) closing.push(async () => (await one.catch(() => undefined))?.close());
    const nodes = await Promise.all(starts);
    const { kubectl } = control;
    const join = (runtime?: Runtime) => start(options.nodes, runtime);
    const provide = async (archive: string): Promise<void> => {
      for (const node of nodes) await node.import(archive);
      archives.push(archive);
    };
    return { wire, control, nodes, kubectl, programs, logs: options.logs, image, provide, join, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Waits until that many nodes are ready. */
export async function untilReady({ kubectl, nodes }: Cluster, seconds = 120): Promise<void> {
  await awaiting('all nodes to be ready', seconds, async () => {
    // A node that was away keeps a taint for some seconds after it is ready, and gets no pod until that is gone.
    const ready = (await kubectl.list('nodes')).filter(node => isReady(node) && !node.spec.taints?.length);
    return ready.length === nodes.length;
  });
}

/** Whether the API server has a node or pod as ready. */
export function isReady({
  status,
}: {
  status?: { conditions?: { type: string; status: string }[] };
}): boolean {
  return status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
}
