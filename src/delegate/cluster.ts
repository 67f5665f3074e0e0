// What does the delegate runner ask of a cluster, and tell it?

import type { JsonObject } from '../cni/json.ts';
import type { ResultDns } from '../cni/result.ts';
import { tryRead } from '../files/read-file.ts';

/** How to reach the API, and how long a reply may take. */
export interface ClusterAccess {
  /** Path of a kubeconfig; if undefined, the account of the pod that this process runs in. */
  readonly kubeconfig: string | undefined;
  readonly timeoutMs: number;
}

export interface KubernetesPod {
  readonly uid: string;
  /** Its version: a write that names it is refused once the pod has changed. */
  readonly version: string;
  readonly annotations: Readonly<Record<string, string>>;
  /** Set for a pod in which KubeVirt runs a virtual machine. */
  readonly machine?: PodMachine;
}

/** KubeVirt sets it on every pod of a machine. */
export const MACHINE_ANNOTATION = 'kubevirt.io/domain';

export interface PodMachine {
  /** Of the machine's instance: the same for all pods of a migration. */
  readonly uid: string;
  /** The pod was made for the machine to move to. */
  readonly isTarget: boolean;
  /** The machine runs here, or takes packets here already. */
  readonly isActive: boolean;
}

export interface PodOfMachine extends Pick<KubernetesPod, 'uid' | 'annotations'> {
  readonly name: string;
  /** All its containers have ended for good. */
  readonly isOver: boolean;
}

/** An IPAMClaim: addresses that outlive pods. */
export interface IpamClaim {
  readonly namespace: string;
  readonly name: string;
  readonly network: string;
  /** Its addresses; none before its first pod. */
  readonly ips: readonly string[];
  /** Addresses that its creator would like it to have. */
  readonly requested: readonly string[];
  /** Tells it from a later one of its name. */
  readonly uid: string;
  readonly version: string;
}

/** The parts of a Kubernetes definition that are needed here. */
export interface NetworkDefinition {
  readonly name: string;
  /** Undefined if the file does not name one: the definition is then for every namespace. */
  readonly namespace: string | undefined;
  /** Text of the CNI configuration; empty if a file of the same name in `confDir` holds it. */
  readonly config: string;
  /** Its annotation: the resource of which the network gets a device. */
  readonly resource?: string;
}

export interface Device {
  /** Name of the resource under which a device plugin offers it: `intel.com/sriov`. */
  readonly resource: string;
  /** As the device plugin names it: a PCI address for network devices. */
  readonly id: string;
}

export interface KubeletPod {
  readonly namespace: string;
  readonly name: string;
  /** By which the file names it. */
  readonly uid: string | undefined;
}

/** A cluster. Every call throws CniError 11 if it cannot be reached or is busy. */
export interface Cluster {
  /** Undefined if there is none. */
  findDefinition(namespace: string, name: string): Promise<NetworkDefinition | undefined>;
  /**
   * Undefined if there is none.
   * @param uid that the caller expects: a cached pod with a different one need not be returned
   */
  findPod(namespace: string, name: string, uid?: string): Promise<KubernetesPod | undefined>;
  /** Devices that a pod has by claims of dynamic resource allocation, as `claimedDevices` in resource-claims.ts. */
  listClaimedDevices(pod: KubeletPod): Promise<readonly Device[]>;
  findPodsOfMachine(namespace: string, machine: string): Promise<readonly PodOfMachine[]>;
  /** Sets annotations of this very pod; the rest of it stays unchanged. Nothing happens if it is gone. */
  annotate(namespace: string, pod: { name: string; uid: string }, annotations: JsonObject): Promise<void>;
  /**
   * Writes or removes the annotation; the rest of the pod stays unchanged.
   * @param uid of the pod; a later one of its name is left alone
   * @returns false if there is no such pod
   */
  setStatus(
    namespace: string,
    name: string,
    status: readonly NetworkStatus[] | undefined,
    uid?: string,
  ): Promise<boolean>;
  /**
   * Writes the annotation of this very pod in this version.
   * @returns false if the pod has been changed or replaced since, or is gone
   */
  replaceStatus(
    namespace: string,
    name: string,
    pod: Pick<KubernetesPod, 'uid' | 'version'>,
    status: readonly NetworkStatus[],
  ): Promise<boolean>;
  /** Creates an event; one of the same name stays as it is. */
  addEvent(namespace: string, event: JsonObject): Promise<void>;
  /** Undefined if there is none. */
  findClaim(namespace: string, name: string): Promise<IpamClaim | undefined>;
  /**
   * Writes addresses into an IPAMClaim; the rest of it stays unchanged.
   * @param pod that has the addresses
   * @returns the updated IPAMClaim
   * @throws CniError 11 also if it has been changed since it was read, 7 if it is gone
   */
  fillClaim(claim: IpamClaim, ips: readonly string[], pod: string): Promise<IpamClaim>;
}

/** The part of a cluster that stores IPAMClaims. */
export type ClaimStore = Pick<Cluster, 'findClaim' | 'fillClaim'>;

/** One element of the annotation `k8s.v1.cni.cncf.io/network-status`. */
export interface NetworkStatus {
  readonly name: string;
  readonly interface?: string;
  /** Without prefix length, as readers expect. */
  readonly ips?: readonly string[];
  readonly mac?: string;
  /** Bytes. */
  readonly mtu?: number;
  /** Exactly one network of a pod is the default one. */
  readonly default?: true;
  readonly dns: ResultDns;
  /** Gateways of its default routes. */
  readonly gateway?: readonly string[];
  readonly 'device-info'?: JsonObject;
}

const TOKEN_FILE = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** True in a pod that has a service account of its cluster. */
export function isInCluster(env: Readonly<Record<string, string | undefined>>): boolean {
  if (!env.KUBERNETES_SERVICE_HOST || !env.KUBERNETES_SERVICE_PORT) return false;
  return Boolean(tryRead(TOKEN_FILE));
}
