// How does a daemon know the objects of a cluster without a request per pod?

import { statSync } from 'node:fs';
import { isObject, type JsonObject } from '../cni/json.ts';
import { type ApiServer, openApiServer } from './api-server.ts';
import type { Cluster, ClusterAccess, KubernetesPod } from './cluster.ts';
import { definitionsOf } from './find-network.ts';
import { clusterAt, DEFINITIONS, DEFINITIONS_API, podOf } from './kubernetes.ts';
import { WATCH_LIMITS, type WatchLimits, watchObjects } from './object-watch.ts';

interface WatchOptions {
  /** Name of this node, whose pods are watched as well; without one, pods are read when they are needed. */
  readonly nodeName: string | undefined;
  /** Called with why something is not watched; it is then read from the server. */
  readonly onProblem: (problem: Error) => void;
  /** Called with why an event was not sent. */
  readonly onUntold: (problem: unknown) => void;
  /** Called with each pod of this node that is new or changed, or may be. */
  readonly onPod?: (namespace: string, name: string, pod: KubernetesPod) => void;
  readonly limits?: WatchLimits;
}

/** A cluster that no call has named for this long is no longer watched. */
const IDLE_MS = 30 * 60_000;

/** Clusters of one daemon. Each is watched from the first call whose configuration names it. */
export function watchClusters(options: WatchOptions) {
  const open = new Map<string, Opened>();
  const drop = (key: string): void => {
    const { watched, idle } = open.get(key) ?? {};
    clearTimeout(idle);
    watched?.close();
    open.delete(key);
  };
  return {
    /** @throws CniError 7 when the kubeconfig cannot be used */
    open(access: ClusterAccess): Cluster {
      const key = JSON.stringify([access.kubeconfig, access.timeoutMs]);
      const version = versionOf(access.kubeconfig);
      if (open.get(key)?.version !== version) drop(key);
      const watched = open.get(key)?.watched ?? watchCluster(openApiServer(access), options);
      clearTimeout(open.get(key)?.idle);
      open.set(key, { watched, version, idle: setTimeout(() => drop(key), IDLE_MS).unref() });
      return watched;
    },
    close(): void {
      for (const key of [...open.keys()]) drop(key);
    },
  };
}

interface Opened {
  readonly watched: ReturnType<typeof watchCluster>;
  readonly version: string;
  readonly idle: NodeJS.Timeout;
}

/** A cluster that is watched until it is closed, whose definitions, and pods of this node, are known while their watch runs, and read from the server otherwise. */
function watchCluster(
  server: ApiServer,
  { nodeName, onProblem, onUntold, onPod, limits = WATCH_LIMITS }: WatchOptions,
): Cluster & { close(): void } {
  const direct = clusterAt(server);
  const definitions = watchObjects(server, DEFINITION_KIND, onProblem, limits);
  const pods = nodeName ? watchObjects(server, podsOn(nodeName, onPod), onProblem, limits) : undefined;
  return {
    // IPAMClaims among them: few pods have one, and outdated addresses must not be used.
    ...direct,
    // A definition that is not known may have just been created.
    async findDefinition(namespace, name) {
      return definitions.find(namespace, name) ?? direct.findDefinition(namespace, name);
    },
    async findPod(namespace, name, uid) {
      const known = pods?.find(namespace, name);
      return known && known.uid === uid ? known : direct.findPod(namespace, name);
    },
    addEvent: inTurn(direct.addEvent, onUntold),
    close() {
      definitions.close();
      pods?.close();
    },
  };
}

/** Of more that wait none is sent: the API server has been away for long then, and what happened is in the log. */
const MOST_EVENTS = 1_000;

/** Sends events one after the other, and has no verb wait for them: while many pods start, the API server is busy with their status. */
function inTurn(send: Cluster['addEvent'], onUntold: WatchOptions['onUntold']): Cluster['addEvent'] {
  const waiting: Parameters<typeof send>[] = [];
  let isSending = false;
  const work = async (): Promise<void> => {
    isSending = true;
    for (let next = waiting.shift(); next; next = waiting.shift()) await send(...next).catch(onUntold);
    isSending = false;
  };
  return async (...event) => {
    if (waiting.length < MOST_EVENTS) waiting.push(event);
    if (!isSending) void work();
  };
}

const DEFINITION_KIND = {
  path: `${DEFINITIONS_API}/${DEFINITIONS}`,
  // Items of a list need not name their kind.
  keep: (object: JsonObject) => definitionsOf({ ...object, kind: 'NetworkAttachmentDefinition' })[0],
};

function podsOn(nodeName: string, onPod: WatchOptions['onPod']) {
  const onChange = (object: JsonObject): void => {
    const { namespace, name } = isObject(object.metadata) ? object.metadata : {};
    if (typeof namespace === 'string' && typeof name === 'string') onPod?.(namespace, name, podOf(object));
  };
  return {
    path: 'api/v1/pods',
    query: { fieldSelector: `spec.nodeName=${nodeName}` },
    keep: podOf,
    ...(onPod && { onChange }),
  };
}

/** Changes when the file does: certificates are replaced. */
function versionOf(kubeconfig: string | undefined): string {
  if (kubeconfig === undefined) return '';
  const { ino, mtimeMs, size } = statSync(kubeconfig, { throwIfNoEntry: false }) ?? {};
  return `${ino} ${mtimeMs} ${size}`;
}
