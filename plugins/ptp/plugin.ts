// What does the ptp plugin do for each verb?

import { askIpam, dnsOf } from '../../src/attach/addressing.ts';
import { requirePrevResult } from '../../src/attach/device.ts';
import { ensureForwarding, stuckFamilies } from '../../src/attach/forwarding.ts';
import { backendOf, withSources } from '../../src/attach/masquerade.ts';
import {
  checkMasquerading,
  handOverMasquerading,
  probeMasquerading,
  startMasquerading,
  stopMasquerading,
  stopStaleMasquerading,
} from '../../src/attach/masquerading.ts';
import { awaitTraffic, requireReadiness, warnOfDroppingChains } from '../../src/attach/ready.ts';
import { type Pair, removePair, removeStalePairs } from '../../src/attach/veth.ts';
import { defined } from '../../src/cni/json.ts';
import { atLeast, type Result } from '../../src/cni/result.ts';
import { renderCidr, renderIp } from '../../src/net/ip.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/kinds.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/steps.ts';
import { PtpConf, validatePtpConf } from './config.ts';
import { checkConnection, connect, repairConnection } from './kernel.ts';

import { CONTAINER_INTERFACE, type PtpPlan, planFromResult, planPtp, refuseBrought } from './plan.ts';

/** Connects a container to the host, with the host as its only neighbour. */
export const ptp = definePlugin({
  name: 'ptp',
  config: PtpConf,
  netns: 'required',

  async add(call) {
    const { conf } = call;
    const type = validatePtpConf(conf);
    const ipam = (await askIpam(call)) ?? {};
    const plan = planPtp(ipam, type);
    refuseBrought(call, plan);
    const pair = connect(call, plan);
    const cidrs = plan.ips.map(({ cidr }) => cidr);
    if (conf.ipMasq) startMasquerading(call, conf, withSources(conf, cidrs));
    await awaitTraffic(call.log, [
      { socket: call.container, link: pair.container, ips: cidrs.map(({ ip }) => ip) },
      { socket: call.host, link: pair.host, ips: plan.hostAddresses.map(({ ip }) => ip) },
    ]);
    ensureForwarding(
      call,
      cidrs.map(({ ip }) => ip),
    );
    return renderConnection(call, pair, ipam, plan);
  },

  async check(call) {
    const { conf } = call;
    const type = validatePtpConf(conf);
    await call.delegate(type).check();
    const prevResult = requirePrevResult(call);
    const plan = planFromResult(prevResult, type);
    checkConnection(call, prevResult, plan);
    if (!conf.ipMasq) return;
    const cidrs = plan.ips.map(({ cidr }) => cidr);
    checkMasquerading(call, backendOf(conf), withSources(conf, cidrs));
  },

  repair: repairConnection,

  handOver(call, mode) {
    const { conf, prevResult } = call;
    const ips = conf.ipMasq && prevResult?.ips ? planFromResult(prevResult, validatePtpConf(conf)).ips : [];
    return handOverMasquerading(
      call,
      ips.map(({ cidr }) => cidr),
      mode,
    );
  },

  async del(call) {
    const type = call.conf.ipam?.type;
    // The address is released last: it must not be reused while anything still refers to it.
    await removePair(call, () =>
      tryAll([() => stopMasquerading(call), () => (type ? call.delegate(type).del() : undefined)]),
    );
  },

  async gc(call) {
    const type = call.conf.ipam?.type;
    const { kept } = call;
    if (kept === undefined) return;
    await removeStalePairs(call, kept, () =>
      tryAll([() => stopStaleMasquerading(call, kept), () => (type ? call.delegate(type).gc() : undefined)]),
    );
  },

  async status(call) {
    const type = validatePtpConf(call.conf);
    probePtp(call);
    await call.delegate(type).status();
  },
});

/** The result: host end and container interface in this order, then the IPAM result. */
function renderConnection(
  { conf, env, version }: Call<PtpConf>,
  { host, container }: Pair,
  ipam: Result,
  { ips }: PtpPlan,
): Result {
  const reportsMtu = conf.mtu !== 0 && atLeast(version, '1.1.0');
  const dns = dnsOf(conf, ipam);
  return {
    ...ipam,
    interfaces: [
      { name: host.name, mac: host.mac ?? '' },
      {
        name: container.name,
        mac: container.mac ?? '',
        sandbox: env.netns,
        ...(reportsMtu ? { mtu: container.mtu } : {}),
      },
    ],
    ips: ips.map(({ cidr, gateway }) => ({
      address: renderCidr(cidr),
      gateway: renderIp(gateway),
      interface: CONTAINER_INTERFACE,
    })),
    ...defined({ dns }),
  };
}

/**
 * Looks for anything that would make ADD fail: veth pairs, the packet filter, forwarding. Changes nothing. The IPAM plugin
 * decides which families the next container gets, so forwarding of one family is enough.
 * @throws CniError 50
 */
function probePtp(call: Call<PtpConf>): void {
  requireReadiness(() => {
    requireLinkKind(call.host, 'veth');
    if (call.conf.ipMasq) probeMasquerading(call, backendOf(call.conf));
    if (stuckFamilies().length === 2) throw new Error('forwarding is off and cannot be turned on');
    warnOfDroppingChains(call);
  });
}
