// What is restored of a device in the container when others have changed it?
import { findLink, type Link, setLink } from '../../netlink/rtnl/link.ts';
import { IFF_UP } from '../../netlink/rtnl/link-header.ts';
import type { Call } from '../../plugin/define.ts';
import { mend } from '../../plugin/mend.ts';
import { checkRoutes, putRoutesRight } from '../routes.ts';
import { addressesFromResult } from './plan.ts';

/**
 * Brings the device up and restores its routes.
 * @throws Error when the device is missing: only a new ADD can make it
 */
export function repairDevice(call: Call, kind: string): Link {
  const { container, env, prevResult } = call;
  const link = findLink(container, env.ifname);
  if (prevResult === undefined || link?.kind !== kind) {
    throw new Error(
      `Cannot repair the attachment: only DEL and ADD can recreate the ${kind} interface "${env.ifname}"`,
    );
  }
  if (!(link.flags & IFF_UP)) setLink(container, link.index, { up: true });
  const { routes } = addressesFromResult(prevResult, env.ifname, env.netns);
  mend(
    () => checkRoutes(container, link, routes),
    () => putRoutesRight(container, link, routes),
  );
  return link;
}
