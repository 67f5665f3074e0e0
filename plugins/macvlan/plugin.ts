// What does the macvlan plugin do for each verb?
import { addDevice } from '../../src/attach/device/address.ts';
import { removeDevices } from '../../src/attach/device/remove.ts';
import { renderDevice } from '../../src/attach/device/report.ts';
import { removeAndRelease } from '../../src/attach/ipam.ts';
import { removeStaleUppers } from '../../src/attach/upper/stale.ts';
import { probeUpper } from '../../src/attach/upper/status.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { Errno } from '../../src/sys/errno.ts';
import {
  checkAccess,
  closeAccess,
  closeStaleAccess,
  openAccess,
  probeAccess,
  refuseHandover,
  repairAccess,
} from './access.ts';
import { checkMacvlan } from './check.ts';
import { MacvlanConf, validateMacvlanConf } from './config.ts';
import { createMacvlan } from './kernel.ts';
import { repairMacvlan } from './repair.ts';
import { refuseWireless } from './wireless.ts';

/** Connects a container to the link of a host interface, with a hardware address of its own. */
export const macvlan = definePlugin({
  name: 'macvlan',
  config: MacvlanConf,
  netns: 'required',

  async add(call) {
    validateMacvlanConf(call.conf);
    const probe = call.conf.detectConflicts;
    const addressed = await addDevice(call, () => createMacvlan(call), { shared: true, probe }).catch(
      thrown => {
        throw isNetlinkError(thrown, Errno.EADDRINUSE) ? takenMac(call, thrown) : thrown;
      },
    );
    await openAccess(
      call,
      addressed.link,
      (addressed.addressing?.ips ?? []).map(({ cidr }) => cidr.ip),
    );
    return renderDevice(call, addressed, call.prevResult);
  },

  async check(call) {
    const { conf } = call;
    validateMacvlanConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    await checkAccess(call, checkMacvlan(call));
  },

  async repair(call) {
    repairMacvlan(call);
    await repairAccess(call);
  },

  async handOver(call) {
    await refuseHandover(call);
    return [];
  },

  async del(call) {
    await removeAndRelease(call, 'del', release =>
      removeDevices(call, 'macvlan', () => tryAll([() => closeAccess(call), release])),
    );
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeAndRelease(call, 'gc', release =>
      removeStaleUppers(call, 'macvlan', kept, () => tryAll([() => closeStaleAccess(call, kept), release])),
    );
  },

  async status(call) {
    const { conf } = call;
    validateMacvlanConf(conf);
    probeUpper(call, 'macvlan', { examine: refuseWireless });
    await probeAccess(call);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).status();
  },
});

/** The kernel says so when the interface goes up: it knows those in other namespaces, too. */
function takenMac({ env }: Call, cause: Error): CniError {
  return new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach "${env.ifname}": another interface on the master has its hardware address; request another one, or none`,
    { cause, details: cause.message },
  );
}
