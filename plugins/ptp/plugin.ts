// What does the ptp link do for each verb?
import { ensureForwarding } from '../../src/attach/forwarding.ts';
import { askIpam } from '../../src/attach/ipam.ts';
import { backendOf } from '../../src/attach/masq-backend.ts';
import {
  checkMasquerading,
  startMasquerading,
  stopMasquerading,
  stopStaleMasquerading,
} from '../../src/attach/masquerading.ts';
import { validAttachmentsOf } from '../../src/attach/owner.ts';
import { awaitTraffic } from '../../src/attach/ready.ts';
import { removePair, removeStalePairs } from '../../src/attach/veth.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { checkConnection } from './check.ts';
import { PtpConf, validatePtpConf } from './config.ts';
import { connect } from './kernel.ts';
import { planFromResult, planPtp } from './plan.ts';
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
    const pair = connect(call, plan);
    const cidrs = plan.ips.map(({ cidr }) => cidr);
    if (conf.ipMasq) startMasquerading(call, backendOf(conf), cidrs);
    await awaitTraffic(call.log, [
      { socket: call.container, link: pair.container, ips: cidrs.map(({ ip }) => ip) },
      { socket: call.host, link: pair.host, ips: plan.hostAddresses.map(({ ip }) => ip) },
    ]);
    ensureForwarding(cidrs.map(({ ip }) => ip));
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
    checkMasquerading(
      call,
      backendOf(conf),
      plan.ips.map(({ cidr }) => cidr),
    );
  },

  repair: repairConnection,

  async del(call) {
    const type = call.conf.ipam?.type;
    // The address goes back last: nobody else may get it while something still points to it.
    await removePair(call, () =>
      tryAll([() => stopMasquerading(call), () => (type ? call.delegate(type).del() : undefined)]),
    );
  },

  async gc(call) {
    const type = call.conf.ipam?.type;
    const valid = validAttachmentsOf(call);
    if (valid === undefined) return;
    await removeStalePairs(call, valid, () =>
      tryAll([() => stopStaleMasquerading(call, valid), () => (type ? call.delegate(type).gc() : undefined)]),
    );
  },

  async status(call) {
    const type = validatePtpConf(call.conf);
    probePtp(call);
    await call.delegate(type).status();
  },
});
