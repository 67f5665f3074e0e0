// How does an attachment get addresses that the kernel forms, and the resolvers that go with them?
import type { Result } from '../../../src/cni/result.ts';
import { removeAddress } from '../../../src/netlink/rtnl/addr.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { DEFAULT_TIMEOUT_S, type DhcpConf, serversOf } from '../config.ts';
import { duidOf, iaidOf } from '../identity.ts';
import { attachmentOf } from '../record.ts';
import { awaitFormed } from './autoconf.ts';
import { askResolvers, type Resolvers } from './client/information.ts';
import { withClient } from './client/session.ts';
import type { Search } from './obtain.ts';
import { advertisedResolvers, resultOf } from './plan.ts';
import { awaitRouters } from './routers.ts';

/** Resolvers are worth less than the container's start. */
const INFORMATION_MS = 4_000;
/** How often the router that the kernel has heard is asked. */
const ASK_ROUTERS = 2;

/**
 * Waits for addresses that the kernel forms from advertisements. They are taken from the interface again: the plugin that called adds
 * what it is told, and the reference's fail if the interface has it already. The next advertisement gives them their lifetimes.
 * @throws CniError 11 when there is none in time
 */
export async function obtainFormed(call: Call, conf: DhcpConf, search: Search): Promise<Result> {
  const { place, routers, giveUpAt } = search;
  const { priority, timeout = DEFAULT_TIMEOUT_S } = conf.ipam;
  const addresses = await awaitFormed(place, routers, { timeoutS: timeout, giveUpAt });
  // The kernel may have formed them before this listened.
  const heard = await awaitRouters(routers, ASK_ROUTERS);
  const advertised = advertisedResolvers(heard);
  const resolvers =
    conf.ipam.ipv6 === 'stateless' ? ((await askServers(call, conf, search)) ?? advertised) : advertised;
  for (const cidr of addresses) removeAddress(place.socket, place.link.index, cidr);
  return resultOf({ addresses, routers: routers.heard(), resolvers, priority, version: call.version });
}

async function askServers(
  call: Call,
  conf: DhcpConf,
  { place, giveUpAt }: Search,
): Promise<Resolvers | undefined> {
  const identity = { duid: duidOf(attachmentOf(call)), iaid: iaidOf(attachmentOf(call)) };
  const until = Math.max(giveUpAt, performance.now() + INFORMATION_MS);
  const manner = { servers: serversOf(conf.ipam.servers, 6) };
  const told = await withClient(place, identity, until, client =>
    askResolvers(client, manner, performance.now() + INFORMATION_MS),
  );
  if (told === undefined)
    call.log.warn(
      `No DHCPv6 server named resolvers for "${place.link.name}"; the result has those of routers, if any`,
    );
  return told;
}
