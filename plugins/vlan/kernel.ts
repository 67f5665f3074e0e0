// How are the devices created in the kernel?
import { stateOf } from '../../src/attach/check.ts';
import { requestedMac } from '../../src/attach/mac.ts';
import { makeUpper } from '../../src/attach/upper/create.ts';
import { findMaster, type Master, requireMtu } from '../../src/attach/upper/master.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { findLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { inNetns } from '../../src/sys/netns.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import type { VlanConf } from './config.ts';
import { planTags } from './plan.ts';

/**
 * Creates a device for each tag in the container, the last one with the interface's name, down and without addresses. Registers its
 * own undo steps.
 * @throws CniError 7 when the master is missing, too small or has the VLAN already, 11 when it is down
 */
export function createVlan(call: Call<VlanConf>): Link {
  const { conf, container } = call;
  const mac = requestedMac(call, call.conf.mac);
  const master = findMaster(call);
  requireMtu(conf.mtu, master);
  requireUp(master);
  const [lowest, inner] = planTags(conf, call.env.ifname);
  if (lowest === undefined) throw new Error('Cannot create interface: there is no VLAN');
  const common = { kind: 'vlan', mtu: conf.mtu } as const;
  if (inner === undefined) return makeUpper(call, master, { ...common, ...lowest, mac });
  const outer = makeUpper(call, master, { ...common, ...lowest });
  // It only carries frames; with addresses of its own it would answer to a VLAN that the container is not in.
  inNetns(call.containerNetns, () => trySysctl(`net/ipv6/conf/${outer.name}/disable_ipv6`, '1'));
  setLink(container, outer.index, { up: true });
  return makeUpper(call, { link: outer, socket: container }, { ...common, ...inner, mac });
}

/** Brings up the outer one of two devices: the kernel took the interface down with it, and does not bring that up before. */
export function raiseOuter({ conf, container, env }: Call<VlanConf>): void {
  const [lowest, inner] = planTags(conf, env.ifname);
  const outer = inner && lowest && findLink(container, lowest.name);
  if (outer?.kind === 'vlan' && stateOf(outer) === 'down') setLink(container, outer.index, { up: true });
}

/** The kernel does not bring up a VLAN device whose master is down. */
function requireUp({ link }: Pick<Master, 'link'>): void {
  if (stateOf(link) === 'up') return;
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot attach container: master interface "${link.name}" is down; run: ip link set ${link.name} up`,
  );
}
