// What does the dhcp plugin do for each verb?
import { awaitTraffic } from '../../src/attach/ready.ts';
import { stateDir } from '../../src/cni/directories.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { decode } from '../../src/cni/json.ts';
import type { Result } from '../../src/cni/result.ts';
import { findLink, IFF_UP, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { isKept } from '../../src/node/upkeep/note.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { asksIpv4, DhcpConf, needsUpkeep, ReleaseConf, validateDhcpConf } from './config.ts';
import { checkIpv4, keepIpv4, obtainIpv4, releaseIpv4 } from './ipv4.ts';
import { IPV4_LEASES } from './lease.ts';
import { mergeResults } from './plan.ts';
import { hasRecord, hasRecords, IPV6_PART } from './record.ts';
import { collectLeases, returnLease } from './upkeep.ts';

/** Obtains addresses from servers and routers on the network that the interface is connected to. */
export const dhcp = definePlugin({
  name: 'dhcp',
  // Not the full schema: DEL must work even if options are invalid.
  config: ReleaseConf,
  netns: 'required',

  async add(call) {
    const conf = readConf(call);
    validateDhcpConf(conf);
    const link = requireInterface(call);
    const listen = conf.ipam.ipv6 && (await loadIpv6()).startIpv6(call, conf, link);
    await bringUp(call, link);
    const ipv6 = listen ? listen() : undefined;
    try {
      const results: Result[] = [];
      if (asksIpv4(conf)) results.push(await obtainIpv4(call, conf, link));
      if (ipv6) results.push(await ipv6.obtain());
      return mergeResults(results);
    } finally {
      ipv6?.close();
    }
  },

  async check(call) {
    const conf = readConf(call);
    if (asksIpv4(conf)) checkIpv4(call);
    if (conf.ipam.ipv6) (await loadIpv6()).checkIpv6(call, conf.ipam.ipv6);
  },

  async upkeep(call, restarted) {
    const conf = readConf(call);
    if (asksIpv4(conf)) await keepIpv4(call, conf, restarted);
    else await (await loadIpv6()).keepIpv6(call, conf, restarted);
  },

  async del(call) {
    await returnLease(call, IPV4_LEASES, releaseIpv4);
    if (hasRecord(call, IPV6_PART)) await (await loadIpv6()).returnIpv6(call);
  },

  async gc(call) {
    await collectLeases(call, IPV4_LEASES, releaseIpv4);
    if (hasRecords(call, IPV6_PART)) await (await loadIpv6()).collectIpv6(call);
  },

  status(call) {
    const conf = readConf(call);
    validateDhcpConf(conf);
    if (!needsUpkeep(conf) || isKept(stateDir(call.environment))) return;
    throw new CniError(
      ErrorCode.unavailableLimited,
      'Cannot keep leases: no daemon renews them; start "catena daemon"',
      {
        details:
          'ADD works; the next daemon takes up its leases, until then they last as long as the server said',
      },
    );
  },
});

/** Only for those who ask for it: IPv6 is as much code again. */
async function loadIpv6(): Promise<typeof import('./ipv6/verbs.ts')> {
  return import('./ipv6/verbs.ts');
}

function readConf({ request, network }: Call): DhcpConf {
  return decode(DhcpConf, request, `configuration of "dhcp" in network "${network}"`);
}

function requireInterface(call: Call): Link {
  const { ifname, netns } = call.env;
  const link = findLink(call.container, ifname);
  if (link) return link;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot request an address: "${netns}" has no interface "${ifname}" yet`,
    {
      details:
        'the plugin that calls dhcp must make the interface first, as bridge and macvlan do; ptp does not',
    },
  );
}

/** Servers are asked through the interface, so it must work before it has an address. */
async function bringUp(call: Call, link: Link): Promise<void> {
  if (!(link.flags & IFF_UP)) {
    setLink(call.container, link.index, { up: true });
    call.onFailure(`set "${link.name}" down`, () => setLink(call.container, link.index, { up: false }));
  }
  await awaitTraffic(call.log, [{ socket: call.container, link, ips: [] }]);
}
