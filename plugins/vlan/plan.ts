// Which devices does the container get, according to the configuration?
import { digestOf } from '../../src/cni/attachment.ts';
import { IFNAME_MAX_BYTES } from '../../src/net/ifname.ts';
import { VLAN_PROTOCOLS } from '../../src/netlink/rtnl/link-attrs.ts';
import type { UpperData } from '../../src/netlink/rtnl/upper.ts';
import { protocolOf, type VlanConf } from './config.ts';

/** A device for one tag, from the master outwards: the last one is the container's interface. */
export interface PlannedTag {
  readonly name: string;
  readonly data: UpperData['vlan'];
}

/**
 * One device for each tag. The outer one of two is also in the container, so that it ends with the attachment. Priorities are
 * those of the interface's own tag.
 */
export function planTags(conf: VlanConf, ifname: string): PlannedTag[] {
  const ids = [conf.vlanId].flat();
  const { egressQosMap, ingressQosMap } = conf;
  return ids.map((id, i) => {
    const isOutermost = i === 0;
    const isInterface = i === ids.length - 1;
    return {
      name: isInterface ? ifname : outerName(ifname, id),
      data: {
        id,
        protocol: VLAN_PROTOCOLS[isOutermost ? protocolOf(conf) : '802.1q'],
        ...(isInterface && egressQosMap?.length ? { egressQos: egressQosMap } : {}),
        ...(isInterface && ingressQosMap?.length ? { ingressQos: ingressQosMap } : {}),
      },
    };
  });
}

/** `net1-100`: the interface, and the VLAN below it. Of a long name only a digest has room: cut names of two interfaces could be the same. */
function outerName(ifname: string, id: number): string {
  const name = `${ifname}-${id}`;
  return Buffer.byteLength(name) > IFNAME_MAX_BYTES ? `${digestOf(ifname).slice(-8)}-${id}` : name;
}
