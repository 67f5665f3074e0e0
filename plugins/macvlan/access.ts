// When has a verb to do with the host's access to its containers?
//
// Most networks do without it, so its code is loaded only when it is needed.
import { addressesFromResult } from '../../src/attach/device.ts';
import { requireReadiness } from '../../src/attach/ready.ts';
import type { Ip } from '../../src/net/ip.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import type { Call, KeptAttachments } from '../../src/plugin/define.ts';
import type { MacvlanConf } from './config.ts';

type MacvlanCall = Call<MacvlanConf>;

/** Lets the host reach the container, and no longer when ADD fails. @param inside the container's interface */
export async function openAccess(call: MacvlanCall, inside: Link, ips: readonly Ip[]): Promise<void> {
  if (!call.conf.hostAccess) return;
  const { openHostAccess } = await import('./host-access.ts');
  call.onFailure("close the host's access", () => closeAccess(call));
  openHostAccess(call, inside, ips);
}

/** @throws Error naming what is missing of the host's access */
export async function checkAccess(call: MacvlanCall, inside: Link): Promise<void> {
  if (!call.conf.hostAccess) return;
  const { checkHostAccess } = await import('./host-access.ts');
  checkHostAccess(call, inside, reportedIps(call));
}

/** Restores what is missing of the host's access. */
export async function repairAccess(call: MacvlanCall): Promise<void> {
  const inside = call.conf.hostAccess ? findLink(call.container, call.env.ifname) : undefined;
  if (inside === undefined) return;
  const { openHostAccess } = await import('./host-access.ts');
  openHostAccess(call, inside, reportedIps(call));
}

/** Ends it, after the container's interface was deleted. */
export async function closeAccess(call: MacvlanCall): Promise<void> {
  if (!(await isConcerned(call))) return;
  const { closeHostAccess } = await import('./host-access.ts');
  closeHostAccess(call);
}

/** Ends it for the network's attachments that GC does not keep. */
export async function closeStaleAccess(call: MacvlanCall, kept: KeptAttachments): Promise<void> {
  if (!(await isConcerned(call))) return;
  const { closeStaleHostAccess } = await import('./host-access.ts');
  closeStaleHostAccess(call, kept);
}

/** @throws Error when the host has access: the reference's DEL would leave it open for the next container of the address */
export async function refuseHandover(call: MacvlanCall): Promise<void> {
  const { isOpenTo } = await import('./host-access.ts');
  if (!(await isConcerned(call)) || !isOpenTo(call)) return;
  throw new Error(
    `Cannot hand over "${call.env.ifname}": only our DEL ends the host's access to it ("hostAccess"); delete the container first`,
  );
}

/** @throws CniError 50 when the kernel cannot restrict what enters by the host's device */
export async function probeAccess(call: MacvlanCall): Promise<void> {
  if (!call.conf.hostAccess) return;
  const { probeHostAccess } = await import('./host-access.ts');
  requireReadiness(() => probeHostAccess(call));
}

/** The configuration may have changed since an ADD. */
async function isConcerned({ conf, host }: MacvlanCall): Promise<boolean> {
  if (conf.hostAccess) return true;
  const { hasDevices } = await import('./host-access.ts');
  return hasDevices(host);
}

function reportedIps({ prevResult, env }: MacvlanCall): Ip[] {
  return addressesFromResult(prevResult ?? {}, env.ifname, env.netns).ips.map(({ cidr }) => cidr.ip);
}
