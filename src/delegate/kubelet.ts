// Which devices of the node has the kubelet allocated to a pod?
//
// It says so on a socket of its own. Kubelets without that socket (before 1.13) have only the file in which they note it for
// themselves.
import { constants, existsSync, lstatSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { describeIssue, parseJson } from '../cni/json.ts';
import { callOnce, type RemoteMethod } from '../daemon/grpc/schema.ts';
import type { Device, KubeletPod } from './cluster.ts';

/** As in multus. */
const BOUNDS = { deadlineMs: 10_000, maxBytes: 16 * 1024 * 1024 };

/** Newest first. */
const SERVICES = ['v1.PodResourcesLister', 'v1alpha1.PodResourcesLister'];

interface Listed {
  readonly pod_resources: readonly {
    readonly name: string;
    readonly namespace: string;
    readonly containers: readonly {
      readonly devices: readonly { readonly resource_name: string; readonly device_ids: readonly string[] }[];
    }[];
  }[];
}

/**
 * The devices of a pod in the order of its containers, and of their names within each: the kubelet keeps no order there.
 * @param dir the kubelet's directory (`--root-dir`)
 * @throws CniError 11 while the kubelet does not answer or does not know the pod; 7 when it has neither socket nor file; 5, 6 for
 *   a file that cannot be used
 */
export async function listPodDevices(dir: string, pod: KubeletPod, bounds = BOUNDS): Promise<Device[]> {
  const sockets = join(dir, 'pod-resources');
  // A kubelet that starts has no socket for a moment, and its file does not tell the order of containers.
  return existsSync(sockets)
    ? listAsTold(join(sockets, 'kubelet.sock'), pod, bounds)
    : listAsNoted(join(dir, 'device-plugins/kubelet_internal_checkpoint'), pod, bounds.maxBytes);
}

async function listAsTold(socketPath: string, pod: KubeletPod, bounds: typeof BOUNDS): Promise<Device[]> {
  const answer = await askKubelet(socketPath, bounds).catch(cause => {
    const { message } = cause as Error;
    throw cannotFind(pod, ErrorCode.tryAgainLater, `the kubelet did not answer on "${socketPath}"`, message);
  });
  if (answer === undefined) {
    throw cannotFind(pod, ErrorCode.invalidConfig, `"${socketPath}" has neither ${SERVICES.join(' nor ')}`);
  }
  const { name, namespace } = pod;
  const found = answer.pod_resources.find(one => one.name === name && one.namespace === namespace);
  if (found === undefined)
    throw cannotFind(pod, ErrorCode.tryAgainLater, 'the kubelet does not list the pod yet');
  return found.containers.flatMap(({ devices }) =>
    inOrder(devices.flatMap(one => one.device_ids.map(id => ({ resource: one.resource_name, id })))),
  );
}

async function askKubelet(socketPath: string, bounds: typeof BOUNDS): Promise<Listed | undefined> {
  for (const service of SERVICES) {
    const method: RemoteMethod = { socketPath, service, method: 'List' };
    const answer = await callOnce<Listed>(method, bounds);
    if (answer) return answer;
  }
  return undefined;
}

/** k8s.io/kubernetes, pkg/kubelet/cm/devicemanager/checkpoint: the devices by NUMA node, until 1.19 in one list. */
const Checkpoint = z.object({
  Data: z.object({
    PodDeviceEntries: z.nullable(
      z.array(
        z.object({
          PodUID: z.string(),
          ContainerName: z.string(),
          ResourceName: z.string(),
          DeviceIDs: z.nullable(
            z.union([z.array(z.string()), z.record(z.string(), z.nullable(z.array(z.string())))]),
          ),
        }),
      ),
    ),
  }),
});

/** The file has no order of containers: that of their names is as good as any, and stays the same. */
function listAsNoted(file: string, pod: KubeletPod, maxBytes: number): Device[] {
  const text = readNote(file, pod, maxBytes);
  const unreadable = (problem: string): CniError =>
    cannotFind(pod, ErrorCode.decodingFailure, `"${file}" is not what this version can read`, problem);
  const parsed = z.safeParse(Checkpoint, parseJson(text, unreadable), { reportInput: false });
  if (!parsed.success) throw unreadable(parsed.error.issues.map(describeIssue).join('; ').slice(0, 500));
  if (!pod.uid) throw cannotFind(pod, ErrorCode.invalidConfig, `"${file}" needs K8S_POD_UID of CNI_ARGS`);
  const own = (parsed.data.Data.PodDeviceEntries ?? []).filter(({ PodUID }) => PodUID === pod.uid);
  const names = [...new Set(own.map(({ ContainerName }) => ContainerName))].sort();
  return names.flatMap(name =>
    inOrder(
      own
        .filter(({ ContainerName }) => ContainerName === name)
        .flatMap(({ ResourceName, DeviceIDs }) =>
          Object.values(DeviceIDs ?? {})
            .flatMap(ids => ids ?? [])
            .map(id => ({ resource: ResourceName, id })),
        ),
    ),
  );
}

function readNote(file: string, pod: KubeletPod, maxBytes: number): string {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found === undefined) {
    const why = `the kubelet has neither a directory "pod-resources" nor "${file}"`;
    throw cannotFind(pod, ErrorCode.invalidConfig, why, 'set "kubeletDir" if it has another directory');
  }
  if (!found.isFile() || found.size > maxBytes) {
    const what = found.isFile() ? `has ${found.size} bytes, more than ${maxBytes}` : 'is not a regular file';
    throw cannotFind(pod, ErrorCode.ioFailure, `"${file}" ${what}`);
  }
  try {
    return readFileSync(file, { encoding: 'utf8', flag: constants.O_RDONLY | constants.O_NONBLOCK });
  } catch (cause) {
    throw cannotFind(pod, ErrorCode.ioFailure, `"${file}" cannot be read`, (cause as Error).message);
  }
}

function inOrder(devices: readonly Device[]): Device[] {
  return devices.toSorted((a, b) => (a.id < b.id ? -1 : Number(a.id > b.id)));
}

function cannotFind({ namespace, name }: KubeletPod, code: number, why: string, details?: string): CniError {
  const message = `Cannot find the devices of pod "${namespace}/${name}": ${why}`;
  return new CniError(code, message, details ? { details } : {});
}
