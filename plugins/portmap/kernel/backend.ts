// Which packet filter forwards the ports of an attachment, given what others have decided on this host?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { cidrContains } from '../../../src/net/cidr.ts';
import { findExemption } from '../../../src/netlink/iptables/exemption.ts';
import { doProgramsChange } from '../../../src/netlink/iptables/mode.ts';
import type { NatRule } from '../../../src/netlink/iptables/nat-rule.ts';
import { findOvertaken } from '../../../src/netlink/iptables/precedence.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { choiceOf, type PortmapConf } from '../config.ts';
import type { Backend } from '../elements.ts';
import { type FamilyPlan, PROTOCOLS } from '../plan.ts';

/**
 * The packet filter of the configuration, unless another one leaves more to others. Rules of iptables that exempt connections, such as
 * kube-proxy's for the addresses of Services in its mode IPVS, hold for rules of iptables only. And iptables would run before
 * tables that were there first, such as kube-proxy's in its mode nftables.
 * @throws CniError 7 when the configuration needs iptables nevertheless
 */
export function chooseBackend(call: Call<PortmapConf>, plans: readonly FamilyPlan[]): Backend {
  const { hostNft, log, conf } = call;
  const { backend, isFree } = choiceOf(conf);
  if (backend === 'iptables') {
    const table = plans.flatMap(({ family }) => findOvertaken(hostNft, family, 'destination') ?? [])[0];
    if (table === undefined) return backend;
    const why = `iptables would translate connections before table "${table}", which was there first`;
    if (isFree) {
      log.warn(`Host ports are forwarded by nftables: ${why}`);
      return 'nftables';
    }
    throw new CniError(ErrorCode.invalidConfig, `Cannot map host ports with iptables: ${why}`, {
      details: 'conditions in nft syntax and "backend": "nftables" leave to others what they translate',
    });
  }
  return isFree && plans.some(plan => isExempted(call, plan)) ? 'iptables' : backend;
}

function isExempted({ hostNft, log }: Call, plan: FamilyPlan): boolean {
  const { family, forwards } = plan;
  const isConcerned = ({ protocol, ports, destination }: NatRule): boolean =>
    forwards.some(
      ({ port, ip, ...one }) =>
        (!protocol || protocol === PROTOCOLS[one.protocol]) &&
        (!ports || ports.includes(port)) &&
        (!ip || !destination || cidrContains(destination.cidr, ip) !== destination.not),
    );
  const where = findExemption(hostNft, family, ['PREROUTING', 'OUTPUT'], isConcerned);
  if (where === undefined) return false;
  if (doProgramsChange(family, where)) return true;
  log.warn('iptables exempts connections, which host ports of nftables do not leave alone', {
    iptables: where,
  });
  return false;
}
