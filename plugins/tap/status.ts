// Could ADD make a tap now?
import { existsSync } from 'node:fs';
import { requireReadiness } from '../../src/attach/readiness.ts';
import { requireLinkChanges, requireLinkKind } from '../../src/netlink/rtnl/supported.ts';
import type { Call } from '../../src/plugin/define.ts';
import { requireTaps } from '../../src/sys/tun.ts';
import { isMacvtap, type TapConf } from './config.ts';
import { findMaster } from './kernel.ts';

/** Where SELinux is mounted if it is enabled. */
const SELINUX = '/sys/fs/selinux/enforce';

/**
 * Looks for anything that would make ADD fail: the driver of taps, or of macvtaps and the master. Changes nothing.
 * @throws CniError 50
 */
export function probeTap(call: Call<TapConf>): void {
  const { conf, host } = call;
  requireReadiness(() => {
    if (isMacvtap(conf)) {
      requireLinkKind(host, 'macvtap');
      findMaster(call);
      return;
    }
    requireLinkChanges(host);
    requireTaps();
    if (conf.selinuxContext && !existsSync(SELINUX)) {
      throw new Error('"selinuxContext" is set, but SELinux is not enabled');
    }
  });
}
