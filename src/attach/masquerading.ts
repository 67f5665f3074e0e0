// How does a link masquerade what a container sends, with the packet filter its configuration names?
import type { Attachment } from '../cni/attachment.ts';
import { type Cidr, findCidr, parseCidr } from '../net/cidr.ts';
import type { Ip } from '../net/ip.ts';
import { getRestore } from '../netlink/iptables/restore.ts';
import { tryOut } from '../netlink/nft/batch.ts';
import { addTable } from '../netlink/nft/table.ts';
import type { Call } from '../plugin/define.ts';
import { tryAll } from '../plugin/try-all.ts';
import type { MasqBackend } from './masq-backend.ts';
import { checkMasquerade, ensureMasquerade, removeMasquerade, removeStaleMasquerade } from './masquerade.ts';
import {
  checkIptablesMasquerade,
  ensureIptablesMasquerade,
  removeIptablesMasquerade,
  removeStaleIptablesMasquerade,
} from './masquerade-iptables.ts';
import {
  countReferenceRules,
  removeReferenceMasquerade,
  removeStaleReferenceMasquerade,
} from './masquerade-reference.ts';
import { TABLE } from './masquerade-skeleton.ts';
import { attachmentOf } from './owner.ts';
import { listPairs } from './veth.ts';

/** Masquerades what the addresses send beyond their subnets. Registers its own undoing. */
export function startMasquerading(call: Call, backend: MasqBackend, cidrs: readonly Cidr[]): void {
  const owner = attachmentOf(call);
  const { hostNft } = call;
  if (backend === 'nftables') {
    call.onFailure('stop masquerading', () => removeMasquerade(hostNft, owner));
    ensureMasquerade(hostNft, owner, cidrs);
    return;
  }
  const addresses = cidrs.map(({ ip }) => ip);
  call.onFailure('stop masquerading', () => removeIptablesMasquerade(hostNft, owner, () => addresses));
  ensureIptablesMasquerade(hostNft, owner, cidrs);
}

/** Ends the masquerading of the call's attachment, whichever link began it with whichever packet filter. */
export async function stopMasquerading(call: Call): Promise<void> {
  const owner = attachmentOf(call);
  const { hostNft } = call;
  await tryAll([
    () => removeMasquerade(hostNft, owner, addressesOf(call)),
    () => removeReferenceMasquerade(hostNft, owner),
    () => removeIptablesMasquerade(hostNft, owner, () => addressesIfShared(call, owner)),
  ]);
}

/** Ends the masquerading of the network's attachments that are not valid any more. */
export async function stopStaleMasquerading(call: Call, valid: readonly Attachment[]): Promise<void> {
  const { hostNft, network } = call;
  await tryAll([
    () => removeStaleMasquerade(hostNft, network, valid),
    () => removeStaleReferenceMasquerade(hostNft, network, valid),
    () => removeStaleIptablesMasquerade(hostNft, network, valid),
  ]);
}

/**
 * Makes sure that the addresses are masqueraded. What the reference plugins did before the link took their place is as
 * good as our own.
 * @throws Error naming what is missing
 */
export function checkMasquerading(call: Call, backend: MasqBackend, cidrs: readonly Cidr[]): void {
  const owner = attachmentOf(call);
  const { hostNft } = call;
  if (backend === 'iptables') {
    checkIptablesMasquerade(hostNft, owner, cidrs);
    return;
  }
  try {
    checkMasquerade(hostNft, owner, cidrs);
  } catch (thrown) {
    if (!isReferenceMasquerading(call, owner, cidrs)) throw thrown;
  }
}

/**
 * Makes sure that the packet filter is there and lets us change it.
 * @throws Error in the words of the kernel, or naming the program that is missing
 */
export function probeMasquerading(call: Call, backend: MasqBackend): void {
  if (backend === 'nftables') tryOut(call.hostNft, [addTable(TABLE)]);
  else getRestore(4);
}

/** Addresses that the runtime knows of. */
function addressesOf({ prevResult }: Call): readonly Cidr[] {
  return (prevResult?.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
}

/** Own addresses, when another interface of the container may share what is keyed by container and network. */
function addressesIfShared(call: Call, owner: Attachment): readonly Ip[] | undefined {
  const shared = listPairs(call.host, owner.network).some(
    ({ owner: other }) => other.containerId === owner.containerId && other.ifname !== owner.ifname,
  );
  if (!shared) return undefined;
  const { interfaces = [], ips = [] } = call.prevResult ?? {};
  const own = interfaces.findIndex(one => one.name === owner.ifname && one.sandbox);
  return ips.flatMap(({ address, interface: at }) => (at === own ? parseCidr(address).ip : []));
}

function isReferenceMasquerading({ hostNft }: Call, owner: Attachment, cidrs: readonly Cidr[]): boolean {
  if (countReferenceRules(hostNft, owner) >= cidrs.length) return true;
  try {
    checkIptablesMasquerade(hostNft, owner, cidrs);
    return true;
  } catch {
    return false;
  }
}
