// Which pod do the arguments of a call name?
import type { CniArgs } from '../cni/cni-args.ts';
import { defined } from '../cni/defined.ts';

/** Name and namespace as the kubelet's runtimes pass them; podman passes the container's name as that of a pod. */
export function podOf(args: CniArgs): { readonly podNamespace?: string; readonly podName?: string } {
  const named: Partial<Record<string, string>> = Object.fromEntries(args);
  return defined({ podNamespace: named.K8S_POD_NAMESPACE, podName: named.K8S_POD_NAME });
}
