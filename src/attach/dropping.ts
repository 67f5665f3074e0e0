// Which packet filters of the host drop what containers send?
import { isLegacyDropping } from '../netlink/iptables/legacy-table.ts';
import { renderTable } from '../netlink/nft/message.ts';
import { listDroppingChains } from '../netlink/nft/policy.ts';
import type { Call } from '../plugin/define.ts';

/**
 * Warns of chains that drop forwarded packets which none of their own rules accepts. A packet has to get past every table:
 * what one of them drops, no rule elsewhere lets pass.
 * @param isTold leaves chains `FORWARD` of iptables out, in which the pods' rules are
 */
export function warnOfDroppingChains(call: Call, isTold = false): void {
  for (const place of [...listDropping(call, isTold), ...(isTold ? [] : listLegacyDropping())]) {
    call.log.warn(`${place} drops forwarded packets that its own rules do not accept`, {
      hint: 'packets of pods pass only if a rule there accepts them, as the link firewall adds it to iptables',
    });
  }
}

function listDropping(call: Call, isTold: boolean): string[] {
  try {
    return listDroppingChains(call.hostNft, 'forward')
      .filter(({ table, chain }) => !(isTold && table.name === 'filter' && chain === 'FORWARD'))
      .map(({ table, chain }) => `chain "${chain}" of table ${renderTable(table)}`);
  } catch {
    // A kernel without nf_tables drops nothing in it; whoever needs it notices by himself.
    return [];
  }
}

function listLegacyDropping(): string[] {
  return ([4, 6] as const)
    .filter(family => isLegacyDropping(family, 'filter', 'FORWARD'))
    .map(family => `chain "FORWARD" of ip${family === 4 ? '' : '6'}tables-legacy`);
}
