// Could ADD connect a container now?
import { warnOfDroppingChains } from '../../src/attach/dropping.ts';
import { stuckFamilies } from '../../src/attach/forwarding.ts';
import { backendOf } from '../../src/attach/masq-backend.ts';
import { probeMasquerading } from '../../src/attach/masquerading.ts';
import { requireReadiness } from '../../src/attach/readiness.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/supported.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { PtpConf } from './config.ts';

/**
 * Looks for anything that would make ADD fail: veth pairs, the packet filter, forwarding. Changes nothing. The IPAM plugin
 * decides which families the next container gets, so forwarding of one family is enough.
 * @throws CniError 50
 */
export function probePtp(call: Call<PtpConf>): void {
  requireReadiness(() => {
    requireLinkKind(call.host, 'veth');
    if (call.conf.ipMasq) probeMasquerading(call, backendOf(call.conf));
    if (stuckFamilies().length === 2) throw new Error('forwarding is off and cannot be turned on');
    warnOfDroppingChains(call);
  });
}
