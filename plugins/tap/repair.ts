// What does the plugin restore when others have changed the tap?
import { addressesFromResult } from '../../src/attach/device/plan.ts';
import { checkRoutes, putRoutesRight } from '../../src/attach/routes.ts';
import { findLink, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import type { TapConf } from './config.ts';

/**
 * Restores the tap's state, its bridge and the routes.
 * @throws Error when the tap is missing: only a new ADD can make it
 */
export async function repairTap({ container, conf, env, prevResult }: Call<TapConf>): Promise<void> {
  const link = findLink(container, env.ifname);
  if (!prevResult || !link) {
    throw new Error(`Cannot repair the attachment: only DEL and ADD can recreate tap "${env.ifname}"`);
  }
  const { routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  await tryAll([
    () => {
      if (!(link.flags & IFF_UP)) setLink(container, link.index, { up: true });
    },
    () => {
      const bridge = conf.bridge ? findLink(container, conf.bridge) : undefined;
      if (bridge && bridge.index !== link.master) setLink(container, link.index, { master: bridge.index });
    },
    () =>
      mend(
        () => checkRoutes(container, link, routes),
        () => putRoutesRight(container, link, routes),
      ),
  ]);
}
