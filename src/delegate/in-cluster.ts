// Does this process run in a pod with a service account?
import { readFileSync } from 'node:fs';

const TOKEN_FILE = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** True in a pod that has a service account of its cluster. */
export function isInCluster(env: Readonly<Record<string, string | undefined>>): boolean {
  if (!env.KUBERNETES_SERVICE_HOST || !env.KUBERNETES_SERVICE_PORT) return false;
  try {
    return readFileSync(TOKEN_FILE, 'utf8') !== '';
  } catch {
    return false;
  }
}
