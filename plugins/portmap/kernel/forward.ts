// Do published ports pass an iptables chain that drops what no rule of it accepts, as Docker and ufw have it?
import { canUseFilter, filterChanges, filterTable } from '../../../src/netlink/iptables/filter.ts';
import { FORWARDED_LABEL } from '../../../src/netlink/iptables/filter-rule.ts';
import { isLegacyDropping } from '../../../src/netlink/iptables/legacy-table.ts';
import { doProgramsChange, hasLegacyTools } from '../../../src/netlink/iptables/mode.ts';
import { restoreTable, saveTable } from '../../../src/netlink/iptables/restore.ts';
import { isDropping } from '../../../src/netlink/nft/chain.ts';
import type { NetlinkSocket, Request } from '../../../src/netlink/socket.ts';

/** The connections that our rules translated, and nothing else. Last, so that whatever operators drop stays dropped. */
const RULE = `FORWARD -m connlabel --label "${FORWARDED_LABEL}" -m comment --comment "catena: published ports" -j ACCEPT`;

/** The changes that add the rule where iptables is in nf_tables and lacks it. Call within `commitAfterReading`. */
export function forwardChanges(socket: NetlinkSocket, families: readonly (4 | 6)[]): Request[] {
  const line = `-A ${RULE}`;
  return families
    .filter(family => isDropping(socket, filterTable(family), 'FORWARD'))
    .flatMap(family =>
      filterChanges(socket, family, { chains: [] }, ({ rules }) =>
        rules.includes(RULE) || !canUseFilter(socket, family, [line]) ? [] : [line],
      ),
    );
}

/** Adds the rule where iptables is the legacy packet filter and lacks it. */
export function forwardInLegacy(families: readonly (4 | 6)[]): void {
  for (const family of families) {
    if (!isLegacyDropping(family, 'filter', 'FORWARD')) continue;
    const mode = doProgramsChange(family, 'legacy') ? 'any' : hasLegacyTools(family) ? 'legacy' : undefined;
    if (mode === undefined || saveTable(family, 'filter', mode).rules.includes(RULE)) continue;
    restoreTable(family, 'filter', [`-A ${RULE}`], mode);
  }
}
