// What do people call a container: which pod is it, and which name has it?
import { join } from 'node:path';
import { derivedNameOf, shortId } from '../cni/attachment.ts';
import { argOf, type CniArgs } from '../cni/env.ts';
import { defined, isObject, tryParse } from '../cni/json.ts';
import { namesIn, tryRead } from '../files/read-file.ts';

export interface ContainerNames {
  readonly podNamespace?: string;
  readonly podName?: string;
  readonly containerName?: string;
}

/** Where containers/storage, the store of podman and CRI-O, keeps `<driver>-containers/containers.json` by default. */
const STORAGE_ROOTS = ['/var/lib/containers/storage', '/run/containers/storage'];

/** The names by container id in the lists of containers/storage. Missing and damaged lists are ignored: names are only for people. */
export function readStorageNames(): ReadonlyMap<string, string> {
  const lists = STORAGE_ROOTS.flatMap(root =>
    namesIn(root)
      .filter(name => name.endsWith('-containers'))
      .flatMap(name => LISTS.map(list => join(root, name, list))),
  );
  return new Map(lists.flatMap(file => entriesOf(tryParse(tryRead(file) ?? ''))));
}

const LISTS = ['containers.json', 'volatile-containers.json'];

function entriesOf(value: unknown): [string, string][] {
  return (Array.isArray(value) ? value : []).flatMap((one): [string, string][] => {
    const { id, names } = isObject(one) ? one : {};
    const [name] = Array.isArray(names) ? names : [];
    return typeof id === 'string' && typeof name === 'string' ? [[id, name]] : [];
  });
}

/** cnitool's way to derive a container id: a namespace always gets the same one. */
export function deriveContainerId(netns: string): string {
  // Not node:crypto: loading it costs more than the rest of the tool.
  const digest = new Bun.CryptoHasher('sha512').update(netns).digest();
  return `cnitool-${digest.subarray(0, 10).toString('hex')}`;
}

/** Where `ip netns` keeps namespaces. */
const NAMESPACES = '/run/netns';

/** What people call a container of which only the id is known. A pod's name is in records, which may be what cannot be read. */
export function titleOfId(id: string, storage = readStorageNames()): string {
  const named = namesIn(NAMESPACES).find(name => deriveContainerId(join(NAMESPACES, name)) === id);
  return storage.get(id) ?? named ?? shortId(id);
}

/**
 * The names of a container, from the arguments of its ADD (kubelet's `K8S_POD_NAME` and `K8S_POD_NAMESPACE`) and the runtime's list.
 * Podman passes the name of the container as that of a pod, and no namespace. An id that was derived from a namespace of
 * `ip netns` stands for the name of that namespace.
 */
export function namesOf(
  container: { readonly containerId: string; readonly args: CniArgs; readonly netns: string },
  storage: ReadonlyMap<string, string>,
): ContainerNames {
  const argument = (key: string) => argOf(container, key) || undefined;
  const [podName, podNamespace] = [argument('K8S_POD_NAME'), argument('K8S_POD_NAMESPACE')];
  const stored = storage.get(container.containerId) ?? derivedNameOf(container);
  if (podNamespace === undefined) return defined({ containerName: stored ?? podName });
  return defined({ podNamespace, podName, containerName: stored });
}
