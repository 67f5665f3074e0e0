// Would each pod of a cluster get from the runner what it got from multus?
import { CniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import type { NetworkDefinition } from '../../delegate/cluster.ts';
import type { Pod, RunnerOptions } from '../../delegate/options.ts';
import { planNetworks, resolveNetwork } from '../../delegate/plan.ts';
import { selectByName } from '../../delegate/selection.ts';
import { listConfigured, listWanted, type Wanted } from '../../delegate/wanted.ts';
import type { AskingPod, MultusCluster } from './multus-found.ts';

/** What a plan of everything has shown. */
export interface Forecast {
  /** Why no pod at all could be attached on this node. */
  readonly defaultNetwork: string | undefined;
  /** Pods whose next ADD would fail, each with the error; and definitions that no pod can use. */
  readonly refused: readonly string[];
  readonly broken: readonly string[];
  /** Pods that name a device, and that name an IPAMClaim. */
  readonly naming: { readonly device: readonly string[]; readonly claim: readonly string[] };
  /** Definitions that multus gives what the runtime offers. */
  readonly offered: readonly string[];
}

/** Plans the networks of every pod as an ADD on this node would. Changes nothing. */
export async function forecast(
  options: RunnerOptions,
  { definitions, pods }: Pick<MultusCluster, 'definitions' | 'pods'>,
  capabilities: JsonObject,
): Promise<Forecast> {
  const planned = withDefinitions(options, definitions);
  const [first] = listConfigured(planned);
  const problem = first && (await problemOf(resolveNetwork(planned, first, 0)));
  const naming = { device: [] as string[], claim: [] as string[] };
  const refused: string[] = [];
  for (const pod of problem === undefined ? pods : []) {
    const name = `${pod.namespace}/${pod.name}`;
    const why = await problemOf(planPod(planned, pod, naming));
    if (why !== undefined) refused.push(`${name}: ${why}`);
  }
  const broken: string[] = [];
  const offered: string[] = [];
  for (const { namespace, name } of definitions) {
    const wanted = { selection: selectByName(name), namespace, byPod: true };
    try {
      const { list } = await resolveNetwork(planned, wanted, 1);
      const has = (key: string) => list.plugins.some(one => one.capabilities[key] === true);
      if (Object.keys(capabilities).some(key => capabilities[key] === true && has(key)))
        offered.push(`${namespace}/${name}`);
    } catch (error) {
      broken.push(`${namespace}/${name}: ${said(error)}`);
    }
  }
  return { defaultNetwork: problem, refused, broken, naming, offered };
}

/** The kubelet is not asked: which devices it gives a pod is the same afterwards. */
function withDefinitions(options: RunnerOptions, definitions: readonly NetworkDefinition[]): RunnerOptions {
  const known = new Map(
    definitions.map(({ resource: _, ...one }) => [`${one.namespace}/${one.name}`, one] as const),
  );
  const fetchDefinition = async (namespace: string, name: string) => known.get(`${namespace}/${name}`);
  return { ...options, places: { ...options.places, fetchDefinition } };
}

async function planPod(
  options: RunnerOptions,
  { namespace, name, annotations }: AskingPod,
  naming: { readonly device: string[]; readonly claim: string[] },
): Promise<void> {
  const args = [['K8S_POD_NAMESPACE', namespace] as const, ['K8S_POD_NAME', name] as const];
  const pod: Pod = { containerId: 'switch', netns: '', ifname: 'eth0', args, capabilityArgs: {} };
  const wanted = listWanted(options, pod, annotations);
  const byPod = wanted.filter(one => one.byPod).map(({ selection }) => selection);
  if (byPod.some(one => one.deviceId !== undefined)) naming.device.push(`${namespace}/${name}`);
  if (byPod.some(one => one.claim !== undefined)) naming.claim.push(`${namespace}/${name}`);
  await planNetworks(options, pod, wanted.map(withoutDevice));
}

function withoutDevice(wanted: Wanted): Wanted {
  return { ...wanted, selection: { ...wanted.selection, deviceId: undefined } };
}

async function problemOf(work: Promise<unknown>): Promise<string | undefined> {
  return work.then(
    () => undefined,
    error => said(error),
  );
}

function said(error: unknown): string {
  if (!(error instanceof CniError)) throw error;
  return error.details ? `${error.message} (${error.details})` : error.message;
}
