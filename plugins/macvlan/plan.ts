// Which device does the container get, according to the configuration?
import { derivedMac } from '../../src/attach/mac.ts';
import { loneInterface } from '../../src/attach/upper/master.ts';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import type { Result } from '../../src/cni/result.ts';
import { MACVLAN_MODES } from '../../src/netlink/rtnl/kinds/macvlan.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import type { NewUpper } from '../../src/netlink/rtnl/upper.ts';
import { type MacvlanConf, modeOf } from './config.ts';

/** The properties of the device. */
export type MacvlanPlan = Pick<NewUpper<'macvlan'>, 'kind' | 'data' | 'mac' | 'mtu'>;

/**
 * The device on a master. In mode `passthru` the device replaces the master, whose hardware address the kernel gives it.
 * @param mac requested hardware address
 */
export function planMacvlan(
  conf: MacvlanConf,
  attachment: AttachmentId,
  master: Pick<Link, 'mac'>,
  mac: string | undefined,
): MacvlanPlan {
  const mode = modeOf(conf);
  const derived = mode === 'passthru' ? undefined : derivedMac(attachment, master.mac ?? '');
  return {
    kind: 'macvlan',
    data: { mode: MACVLAN_MODES[mode], ...(conf.bcqueuelen ? { queueLength: conf.bcqueuelen } : {}) },
    mac: mac ?? derived,
    mtu: conf.mtu,
  };
}

/** The master that an earlier plugin of the chain made: the only interface of its result, where the master is looked for. */
export function chainedMaster({ linkInContainer }: MacvlanConf, prevResult: Result | undefined) {
  const lone = loneInterface(prevResult);
  return lone && Boolean(lone.sandbox) === linkInContainer ? lone.name : undefined;
}
