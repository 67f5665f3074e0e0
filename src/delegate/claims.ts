// How does a pod get the addresses of the pod before it? (Multi-network specification 1.3, IPAMClaim)
//
// An IPAMClaim outlives its pods. Its addresses are requested from the network; if it has none, they are written to it
// once the pod has them. DEL leaves it unchanged: keeping addresses is its purpose.

import { argOf, CLAIM_ARG } from '../cni/env.ts';
import { type CniError, invalidConfig, tryAgainLater } from '../cni/errors.ts';
import { foldKey, type JsonObject } from '../cni/json.ts';
import { findCidr, findIp } from '../net/ip.ts';
import type { ClaimStore, IpamClaim } from './cluster.ts';
import { addressesOf } from './network-status.ts';
import type { PlannedNetwork } from './plan.ts';
import { namespaceOf, type Pod, type Runner } from './runner.ts';
import { MOST_ADDRESSES } from './selection.ts';
import type { WantedNetwork } from './wanted.ts';

/** The part of a runner that IPAMClaims need. */
type ClaimReader = Pick<Runner, 'claims' | 'warn'>;

export interface PodClaims {
  /** The wanted networks, with the addresses that IPAMClaims hold. */
  readonly wanted: readonly WantedNetwork[];
  /**
   * Refuses an IPAMClaim that belongs to another network.
   * @throws CniError 7
   */
  refuseForeign(networks: readonly PlannedNetwork[]): void;
  /**
   * Writes addresses into the IPAMClaims that hold none.
   * @param results by network
   * @throws CniError 7 when a network has given none, 11 when the cluster cannot be reached or another pod was faster
   */
  fill(networks: readonly PlannedNetwork[], results: readonly JsonObject[]): Promise<void>;
  /** Removes the addresses that were written, because the pod does not have them. Never throws. */
  empty(): Promise<void>;
}

/**
 * Reads the IPAMClaims that a pod names.
 * @param joins a machine moves to the pod, and another pod may still have the addresses
 * @throws CniError 7 when one cannot be used, or no cluster is configured; 11 when it does not exist yet or
 *   the cluster cannot be reached
 */
export async function readClaims(
  runner: ClaimReader,
  pod: Pod,
  wanted: readonly WantedNetwork[],
  joins = false,
): Promise<PodClaims> {
  const claims: (IpamClaim | undefined)[] = [];
  for (const { selection } of wanted) {
    const claim = selection.claim === undefined ? undefined : await findClaim(runner, pod, selection.claim);
    if (claim && claims.some(other => other?.name === claim.name)) {
      throw unusable(claim, 'two networks of the pod use it');
    }
    claims.push(claim);
  }
  const filled: IpamClaim[] = [];
  const write = async (claim: IpamClaim, ips: readonly string[]): Promise<IpamClaim> => {
    const store = await storeOf(runner, claim.name);
    return store.fillClaim(claim, ips, argOf(pod, 'K8S_POD_NAME') ?? '');
  };
  return {
    wanted: wanted.map((one, i) => askFor(one, claims[i], joins)),
    refuseForeign(networks) {
      for (const [i, claim] of claims.entries()) refuseForeign(claim, networks[i] as PlannedNetwork);
    },
    async fill(networks, results) {
      for (const [i, claim] of claims.entries()) {
        if (!claim || claim.ips.length) continue;
        const { label, attachment } = networks[i] as PlannedNetwork;
        const ips = addressesOf(attachment, results[i] as JsonObject);
        if (!ips.length) throw unusable(claim, `network "${label}" assigned no address that it could hold`);
        filled.push(await write(claim, ips));
      }
    },
    async empty() {
      for (const claim of filled) {
        await write(claim, []).catch(error =>
          runner.warn('a claim lists addresses that its pod does not have', { error: String(error) }),
        );
      }
    },
  };
}

async function findClaim(runner: ClaimReader, pod: Pod, name: string): Promise<IpamClaim> {
  const store = await storeOf(runner, name);
  const namespace = namespaceOf(pod);
  if (namespace === undefined) {
    throw invalidConfig(
      `Cannot use IPAMClaim "${name}": the container is not a pod: CNI_ARGS has no K8S_POD_NAMESPACE`,
    );
  }
  const claim = await store.findClaim(namespace, name);
  if (claim === undefined) {
    // The creator of the pod also creates the IPAMClaim, and may be about to.
    throw tryAgainLater(`Cannot use IPAMClaim "${namespace}/${name}": the cluster has no such claim`);
  }
  const asked = askedBy(claim);
  if (asked.length > MOST_ADDRESSES)
    throw unusable(claim, `it lists ${asked.length} addresses, more than ${MOST_ADDRESSES}`);
  const wrong = asked.find(text => !findIp(text) && !findCidr(text));
  if (wrong === undefined) return claim;
  throw unusable(claim, `it lists ${JSON.stringify(wrong)}, which is not an address`);
}

/** Ignoring an IPAMClaim would give the pod an address that may belong to another pod when it starts again. */
async function storeOf({ claims }: ClaimReader, name: string): Promise<ClaimStore> {
  if (claims) return claims();
  throw invalidConfig(`Cannot use IPAMClaim "${name}": no cluster is configured; set "kubeconfig"`);
}

function askedBy({ ips, requested }: IpamClaim): readonly string[] {
  return ips.length ? ips : requested;
}

/** An IPAM plugin may keep the addresses for the claim. Only the runner says whose they are: what the pod says counts for nothing. */
function askFor(wanted: WantedNetwork, claim: IpamClaim | undefined, joins: boolean): WantedNetwork {
  const { selection } = wanted;
  const said = Object.entries(selection.cniArgs ?? {});
  const others = Object.fromEntries(said.filter(([key]) => foldKey(key) !== CLAIM_ARG));
  if (claim === undefined)
    return said.length ? { ...wanted, selection: { ...selection, cniArgs: others } } : wanted;
  const ips = askedBy(claim);
  const { namespace, name, uid } = claim;
  const key = { namespace, name, uid, ...(joins && { joins }) };
  const cniArgs = uid ? { ...others, [CLAIM_ARG]: key } : others;
  const capabilityArgs = { ...selection.capabilityArgs, ...(ips.length ? { ips } : {}) };
  return { ...wanted, selection: { ...selection, cniArgs, capabilityArgs } };
}

function refuseForeign(claim: IpamClaim | undefined, { label, list, selection }: PlannedNetwork): void {
  if (!claim?.network || [label, list.name, selection.name].includes(claim.network)) return;
  throw unusable(claim, `it is for network "${claim.network}", not "${label}"`);
}

function unusable({ namespace, name }: IpamClaim, problem: string): CniError {
  return invalidConfig(`Cannot use IPAMClaim "${namespace}/${name}": ${problem}`);
}
