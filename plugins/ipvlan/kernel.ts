// How is the device created in the kernel?
import { makeUpper } from '../../src/attach/upper/create.ts';
import { findMaster, requireMtu } from '../../src/attach/upper/master.ts';
import { pickCniArgs } from '../../src/cni/cni-args.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { IPVLAN_FLAGS, IPVLAN_MODES } from '../../src/netlink/rtnl/link-attrs.ts';
import type { UpperData } from '../../src/netlink/rtnl/upper.ts';
import type { Call } from '../../src/plugin/define.ts';
import { flagsOf, type IpvlanConf, modeOf } from './config.ts';
import { chainedMaster } from './plan.ts';

/**
 * Creates the device in the container, down and without addresses. Registers its own undo step.
 * @throws CniError 7 when there is no usable master, 4 when the container has an interface of that name
 */
export function createIpvlan(call: Call<IpvlanConf>): Link {
  const { conf } = call;
  // All plugins of a chain get the arguments, and another one may be meant.
  if (pickCniArgs(call.args, ['MAC']).MAC) {
    call.log.warn(
      'Cannot use MAC of CNI_ARGS: all ipvlan interfaces have the hardware address of their master',
    );
  }
  const master = findMaster(call, chainedMaster(conf, call.prevResult));
  requireMtu(conf.mtu, master);
  return makeUpper(call, master, { kind: 'ipvlan', data: dataOf(conf), mtu: conf.mtu });
}

/** The attributes of a valid configuration. */
export function dataOf(conf: IpvlanConf): Required<Pick<UpperData['ipvlan'], 'mode' | 'flags'>> {
  return { mode: IPVLAN_MODES[modeOf(conf)], flags: IPVLAN_FLAGS[flagsOf(conf)] };
}
