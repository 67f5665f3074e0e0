// Could ADD attach a container now?
import { CniError, describeError, ErrorCode } from '../cni/errors.ts';
import { FAMILIES } from '../net/ip.ts';
import { isLegacyDropping } from '../netlink/iptables/nat.ts';
import { renderTable } from '../netlink/nft/message.ts';
import { listDroppingChains } from '../netlink/nft/table.ts';
import type { Call } from '../plugin/define.ts';

/**
 * Runs what STATUS of a main plugin looks for.
 * @param examine throws what would make ADD fail, and changes nothing
 * @throws CniError 50
 */
export function requireReadiness(examine: () => void): void {
  try {
    examine();
  } catch (cause) {
    throw new CniError(ErrorCode.unavailable, `Cannot attach containers: ${describeError(cause)}`, { cause });
  }
}

/**
 * Warns of chains that drop forwarded packets which none of their own rules accepts. A packet must pass every table: once
 * one of them drops it, no rule elsewhere can accept it.
 * @param isTold omits the iptables `FORWARD` chains, which contain the pods' rules
 */
export function warnOfDroppingChains(call: Call, isTold = false): void {
  for (const place of [...listDropping(call, isTold), ...(isTold ? [] : listLegacyDropping())]) {
    call.log.warn(`${place} drops forwarded packets that none of its rules accepts`, {
      hint: 'packets of pods pass only if one of its rules accepts them; the firewall plugin adds such a rule to iptables',
    });
  }
}

function listDropping(call: Call, isTold: boolean): string[] {
  try {
    return listDroppingChains(call.hostNft, 'forward')
      .filter(({ table, chain }) => !(isTold && table.name === 'filter' && chain === 'FORWARD'))
      .map(({ table, chain }) => `chain "${chain}" of table ${renderTable(table)}`);
  } catch {
    // A kernel without nf_tables drops nothing there; code that needs nf_tables reports its absence itself.
    return [];
  }
}

function listLegacyDropping(): string[] {
  return FAMILIES.filter(family => isLegacyDropping(family, 'filter', 'FORWARD')).map(
    family => `chain "FORWARD" of ip${family === 4 ? '' : '6'}tables-legacy`,
  );
}
