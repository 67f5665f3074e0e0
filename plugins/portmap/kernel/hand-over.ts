// How do host ports pass from our sets to the iptables rules that the reference plugin deletes?
import { runDir } from '../../../src/cni/directories.ts';
import type { HandoverMode } from '../../../src/cni/env.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { inTurn } from '../../../src/netlink/iptables/restore.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import { iptablesOptionsOf, type PortmapConf } from '../config.ts';
import type { Owner } from '../elements.ts';
import { renderHostPort } from '../plan.ts';
import { chainOwnerOf } from './chains.ts';
import type { Wanted } from './claim.ts';
import { addIptablesPorts, checkForeignPorts } from './iptables.ts';
import { removeIptablesPorts } from './reference.ts';
import { findClaims, releasePorts } from './release.ts';

/**
 * Has iptables forward the attachment's ports in the reference's chain, then removes them from our sets. For a moment both
 * forward to the same place; at no moment does neither. Open connections keep their translation.
 * @param readWanted called when there is something to hand over: an invalid configuration must not hide that
 * @returns what was in our sets
 * @throws CniError 2 for what the reference cannot express or delete
 */
export function handOverPorts(
  nft: NetlinkSocket,
  readWanted: () => Wanted,
  owner: Owner,
  conf: PortmapConf,
  mode: HandoverMode,
): string[] {
  const claims = findClaims(nft, owner);
  if (claims.length === 0) return [];
  const parts = claims.map(claim => `host port ${renderHostPort(claim)}`);
  const { attachment } = owner;
  const wanted = readWanted();
  if (wanted.conditions.length) {
    throw cannot('its conditions are in nft syntax, which iptables rules do not have');
  }
  if (attachment === undefined) throw cannot('the container id is too long to be found in its rules');
  if (chainOwnerOf(nft, owner, attachment) !== attachment) {
    throw cannot('another interface of the container has the chain that the reference would delete');
  }
  if (mode === 'look') return [...new Set(parts)];
  inTurn(runDir(), 'portmap', () => {
    const options = iptablesOptionsOf(conf);
    for (const plan of wanted.plans) {
      try {
        checkForeignPorts(nft, [plan], attachment, options);
      } catch {
        addIptablesPorts(nft, [plan], attachment, options);
      }
    }
    // Rules first: a retry needs what the sets record.
    const released = releasePorts(nft, owner);
    // A concurrent DEL has looked for the rules before they existed.
    if (released.length === 0) removeIptablesPorts(nft, attachment);
  });
  return [...new Set(parts)];
}

function cannot(why: string): CniError {
  return new CniError(
    ErrorCode.unsupportedField,
    `Cannot hand host ports over to the reference's portmap: ${why}`,
    {
      details: 'delete the pod before you remove these plugins',
    },
  );
}
