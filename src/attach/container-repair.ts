// What of the container's interface is put back when others have changed it?
import type { PluginConfig } from '../cni/plugin-config.ts';
import { type Cidr, renderCidr } from '../net/cidr.ts';
import { addAddressRequest, listAddresses } from '../netlink/rtnl/addr.ts';
import { type Link, setLink } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';

/** Gives the interface the hardware address and the MTU that the result reports. @returns it as it is then */
export function repairInterface(call: Call, link: Link): Link {
  const { env, prevResult, container } = call;
  const reported = prevResult?.interfaces?.find(
    ({ name, sandbox }) => name === env.ifname && sandbox === env.netns,
  );
  const mac = reported?.mac?.toLowerCase();
  const wrongMac = mac !== undefined && mac !== link.mac ? mac : undefined;
  const wrongMtu = reported?.mtu !== undefined && reported.mtu !== link.mtu ? reported.mtu : undefined;
  if (wrongMac === undefined && wrongMtu === undefined) return link;
  setLink(container, link.index, { mac: wrongMac, mtu: wrongMtu });
  return { ...link, ...(wrongMac === undefined ? {} : { mac: wrongMac }) };
}

/**
 * Gives the interface those of its addresses that are missing, if they are still this attachment's.
 * @throws CniError of the IPAM plugin's CHECK: another attachment may have the address
 */
export async function repairAddresses(
  call: Call<PluginConfig>,
  link: Link,
  cidrs: readonly Cidr[],
): Promise<void> {
  const present = listAddresses(call.container, link.index).map(({ cidr }) => renderCidr(cidr));
  const missing = cidrs.filter(cidr => !present.includes(renderCidr(cidr)));
  if (missing.length === 0) return;
  const type = call.conf.ipam?.type;
  if (type) await call.delegate(type).check();
  // Nothing else can have it: whether there are duplicates was found out at ADD.
  call.container.requestAll(missing.map(cidr => addAddressRequest(link.index, cidr, { nodad: true })));
}
