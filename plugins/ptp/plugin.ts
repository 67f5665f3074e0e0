// What does the ptp plugin do for each verb?
import { ensureForwarding } from '../../src/attach/forwarding.ts';
import { askIpam } from '../../src/attach/ipam.ts';
import { backendOf } from '../../src/attach/masq-backend.ts';
import { withSources } from '../../src/attach/masq-source.ts';
import { handOverMasquerading } from '../../src/attach/masquerade-handover.ts';
import {
  checkMasquerading,
  startMasquerading,
  stopMasquerading,
  stopStaleMasquerading,
} from '../../src/attach/masquerading.ts';
import { awaitTraffic } from '../../src/attach/ready.ts';
import { removePair, removeStalePairs } from '../../src/attach/veth.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { checkConnection } from './check.ts';
import { PtpConf, validatePtpConf } from './config.ts';
import { connect } from './kernel.ts';
import { planFromResult, planPtp, refuseBrought } from './plan.ts';
import { repairConnection } from './repair.ts';
import { renderConnection } from './report.ts';
import { probePtp } from './status.ts';

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
    const { conf, prevResult } = call;
    const type = validatePtpConf(conf);
    await call.delegate(type).check();
    if (prevResult === undefined) {
      throw new CniError(ErrorCode.invalidConfig, 'Cannot check attachment: the request has no "prevResult"');
    }
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
