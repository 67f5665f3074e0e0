// Does the gateway answer the container?
import { findIp, renderIp, sameIp } from '../../net/ip.ts';
import { ping } from '../ping.ts';
import { renderTime } from '../words.ts';
import { finding, type Probe, placeIps, type Scene } from './probe.ts';

/** Promised by: the gateway of each address of the result. Only the host's own addresses can be probed. */
export function gatewayProbes({ lab, container }: Scene): Probe[] {
  return (container.result.ips ?? []).flatMap(({ gateway }) => {
    const ip = gateway === undefined ? undefined : findIp(gateway);
    if (ip === undefined) return [];
    return {
      what: `gateway ${renderIp(ip)} replies to the container`,
      run() {
        const ours = placeIps(lab.host).some(own => sameIp(own, ip));
        if (!ours)
          return { outcome: 'skipped', seen: 'not an address of this host: another router is expected' };
        const ms = ping(container.place.netns, ip);
        return ms === undefined ? finding(false, 'no reply') : finding(true, renderTime(ms));
      },
    };
  });
}
