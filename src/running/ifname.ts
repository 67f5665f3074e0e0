// Which name does the next interface of a running container get?
import { CniError, ErrorCode } from '../cni/errors.ts';

/** The first free name of `net1`, `net2`, …, as multus numbers the interfaces of additional networks. */
export function nextIfname(taken: ReadonlySet<string>): string {
  for (let number = 1; ; number++) if (!taken.has(`net${number}`)) return `net${number}`;
}

/** @throws CniError 4 if the container has an interface of that name, or is getting one */
export function checkFree(containerId: string, ifname: string, taken: ReadonlySet<string>): void {
  if (!taken.has(ifname)) return;
  throw new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot attach container "${containerId}": it already has an interface "${ifname}"; choose another name (--ifname)`,
  );
}
