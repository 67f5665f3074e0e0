// Is the name of the container's interface still free?
import { CniError, ErrorCode } from '../cni/errors.ts';
import { findLink } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';

/** @throws CniError 4 when the container has an interface of that name */
export function refuseTakenName({ container, env }: Call): void {
  if (findLink(container, env.ifname) === undefined) return;
  throw new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot create interface "${env.ifname}" in "${env.netns}": an interface of that name exists; run DEL first`,
    { details: `CNI_IFNAME=${env.ifname}` },
  );
}
