// Could ADD make a device on the master now?

import { requireLinkKind } from '../../netlink/rtnl/supported.ts';
import type { UpperKind } from '../../netlink/rtnl/upper.ts';
import type { Call } from '../../plugin/define.ts';
import { stateOf } from '../check.ts';
import { requireReadiness } from '../readiness.ts';
import type { UpperConf } from './check.ts';
import { findMaster, type Master, requireMtu } from './master.ts';

/**
 * Looks for anything that would make ADD fail: a missing kind of device, a master that is missing, down, or too small for the
 * MTU. A master in the container cannot be examined, since STATUS has no container. Changes nothing.
 * @param options `examine`: further requirements of the plugin on its master; `isChained`: the plugin before makes the master
 * @throws CniError 50
 */
export function probeUpper(
  call: Call<UpperConf>,
  kind: UpperKind,
  { examine, isChained = false }: { examine?: (master: Master) => void; isChained?: boolean } = {},
): void {
  const { conf, host } = call;
  requireReadiness(() => {
    requireLinkKind(host, kind);
    if (conf.linkInContainer || isChained) return;
    const master = findMaster(call);
    if (stateOf(master.link) === 'down') {
      throw new Error(
        `master interface "${master.link.name}" is down; run: ip link set ${master.link.name} up`,
      );
    }
    requireMtu(conf.mtu, master);
    examine?.(master);
  });
}
