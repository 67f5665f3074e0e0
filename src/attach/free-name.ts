// Is the name of the container's interface still free?
import { CniError, ErrorCode } from '../cni/errors.ts';
import { findLink } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';
import type { Netns } from '../sys/netns.ts';

/** @throws CniError 4 when the container has an interface of that name */
export function refuseTakenName({ container, containerNetns, env }: Call): void {
  if (findLink(container, env.ifname)) throw interfaceExists(env.ifname, containerNetns);
}

/** The container has an interface of that name, which another ADD or the container made. */
export function interfaceExists(ifname: string, netns: Pick<Netns, 'path'>, cause?: unknown): CniError {
  return new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot create interface "${ifname}" in "${netns.path}": an interface of that name exists; run DEL first`,
    { details: `CNI_IFNAME=${ifname}`, cause },
  );
}
