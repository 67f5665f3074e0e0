// Can the master carry frames from hardware addresses other than its own?
import { existsSync } from 'node:fs';
import type { Master } from '../../src/attach/upper/master.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';

/**
 * Refuses a wireless master: an access point drops frames from hardware addresses that have not associated with it, so the container
 * would be mute.
 * @param sysfs where sysfs is mounted; it shows the devices of the host
 * @throws CniError 7
 */
export function refuseWireless({ link }: Pick<Master, 'link'>, sysfs = '/sys'): void {
  if (!existsSync(`${sysfs}/class/net/${link.name}/phy80211`)) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot use wireless interface "${link.name}" as master: an access point drops frames from the containers' hardware addresses; use plugin ipvlan, or a wired master`,
  );
}
