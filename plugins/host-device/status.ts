// Could ADD fetch the device now?
import { requireReadiness } from '../../src/attach/readiness.ts';
import { requireLinkChanges } from '../../src/netlink/rtnl/supported.ts';
import type { Call } from '../../src/plugin/define.ts';
import { type HostDeviceConf, selectorOf } from './config.ts';
import { listRecords } from './record.ts';
import { select } from './select.ts';
import { isMeant } from './take.ts';

/**
 * Looks for the device on the host. One that a container has is no failure: the runtime would refuse all other containers too. If
 * the runtime names the device of each container, there is none to look for. Changes nothing.
 * @throws CniError 50
 */
export function probeDevice(call: Call<HostDeviceConf>): void {
  const { conf, environment, host } = call;
  if (conf.capabilities?.deviceID && !conf.runtimeConfig?.deviceID) return;
  const selector = selectorOf(conf);
  requireReadiness(() => {
    requireLinkChanges(host);
    const found = select(host, selector);
    if (found.kind !== 'absent') return;
    if (listRecords(environment).some(record => isMeant(record, selector))) return;
    throw new Error(found.why);
  });
}
