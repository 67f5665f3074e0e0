// What does the plugin restore when others have changed the interface?
import { addressesFromResult } from '../../src/attach/device/plan.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { checkRoutes, putRoutesRight } from '../../src/attach/routes.ts';
import { findLink, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import { restoreRoutes } from '../../src/netlink/rtnl/route.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import type { HostDeviceConf } from './config.ts';
import { copyRules } from './network.ts';
import { ownNetwork } from './plan.ts';
import { findRecord } from './record.ts';

/**
 * Restores the interface's state, its alias, the container's routes and the copied rules.
 * @throws Error when the interface is missing: only a new ADD can fetch the device
 */
export async function repairDevice(call: Call<HostDeviceConf>): Promise<void> {
  const { conf, container, env, prevResult } = call;
  const link = findLink(container, env.ifname);
  const record = findRecord(call.environment, attachmentOf(call));
  if (!prevResult || !link) {
    throw new Error(`Cannot repair the attachment: only DEL and ADD can fetch the device of "${env.ifname}"`);
  }
  const { routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  await tryAll([
    () => {
      if (!(link.flags & IFF_UP)) setLink(container, link.index, { up: true });
    },
    () => {
      if (record && link.attrs.alias !== record.name) setLink(container, link.index, { alias: record.name });
    },
    () => {
      if (record && conf.useInterfaceNetwork) restoreRoutes(container, ownNetwork(record, link.index).routes);
    },
    () =>
      mend(
        () => checkRoutes(container, link, routes),
        () => putRoutesRight(container, link, routes),
      ),
    () => copyRules(call, record?.rules ?? []),
  ]);
}
