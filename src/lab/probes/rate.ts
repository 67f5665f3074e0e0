// Are bandwidth limits enforced?
import { isObject } from '../../cni/json.ts';
import { cidrContains, findCidr } from '../../net/cidr.ts';
import { type Ip, renderIp } from '../../net/ip.ts';
import { listAddresses } from '../../netlink/rtnl/addr.ts';
import { measureRate } from '../traffic.ts';
import { renderRate } from '../words.ts';
import {
  type ConfiguredPlugin,
  containerIps,
  type Finding,
  finding,
  type Probe,
  type Scene,
} from './probe.ts';

const PORT = 5201;
const SETTLE_MS = 300;
const MEASURE_MS = 1_000;
/** A rate higher than the limit by this factor breaks it; TCP's payload is 4 % less than what is limited. */
const TOLERANCE = 1.15;
/** A rate below this share of the limit has another cause. */
const TOO_SLOW = 0.5;
/** A busy machine slows traffic down and lets buckets refill; neither lasts. */
const ATTEMPTS = 3;

/**
 * Promised by: rates in the configuration or in the `bandwidth` capability argument. Traffic into the container comes from
 * the host, traffic out of it goes to the host.
 */
export function rateProbes(scene: Scene): Probe[] {
  return scene.plugins.flatMap(plugin => [
    ...probe(scene, plugin, 'ingress', 'into the container'),
    ...probe(scene, plugin, 'egress', 'out of the container'),
  ]);
}

function probe(scene: Scene, plugin: ConfiguredPlugin, side: 'ingress' | 'egress', words: string): Probe[] {
  const rateBits = rateOf(plugin, `${side}Rate`);
  if (rateBits === 0) return [];
  const burstBytes = rateOf(plugin, `${side}Burst`) / 8;
  return [
    {
      what: `at most ${renderRate(rateBits)} ${words}`,
      run: () => measure(scene, plugin, side, { rateBits, burstBytes }),
    },
  ];
}

function measure(
  scene: Scene,
  plugin: ConfiguredPlugin,
  side: 'ingress' | 'egress',
  { rateBits, burstBytes }: { rateBits: number; burstBytes: number },
): Finding {
  const pair = addressPair(scene);
  if (pair === undefined) return { outcome: 'skipped', seen: 'the host has no address on this network' };
  if (!isLimited(plugin, pair.host)) {
    return { outcome: 'skipped', seen: `traffic with ${renderIp(pair.host)} is exempt from the limit` };
  }
  const { lab, container } = scene;
  const [from, to] = [lab.host.netns, container.place.netns];
  const route = {
    ...(side === 'ingress'
      ? { client: from, server: to, to: pair.container }
      : { client: to, server: from, to: pair.host }),
    port: PORT,
    toPort: PORT,
  };
  // A bucket that takes longer than this to fill at its own rate cannot be emptied here, so it is measured full.
  const drain = burstBytes * 8 > rateBits * 5 ? 0 : burstBytes;
  const holds = (seen: number) => seen <= rateBits * TOLERANCE && seen >= rateBits * TOO_SLOW;
  let seen: number | undefined;
  for (let attempt = 0; attempt < ATTEMPTS && !(seen && holds(seen)); attempt++) {
    seen = measureRate(route, { burstBytes: drain, settleMs: SETTLE_MS, measureMs: MEASURE_MS });
    if (seen === undefined) break;
  }
  if (seen === undefined) return finding(false, `no connection to ${renderIp(route.to)}`);
  if (drain === 0 && burstBytes > 0) {
    return {
      outcome: 'skipped',
      seen: `${renderRate(seen)}, within a burst of ${Math.round(burstBytes)} bytes`,
    };
  }
  return finding(holds(seen), renderRate(seen));
}

/** An address of the host in the subnet of one of the container's addresses, and that address. */
function addressPair({ lab, container }: Scene): { host: Ip; container: Ip } | undefined {
  const subnets = (container.result.ips ?? []).flatMap(({ address }) => findCidr(address) ?? []);
  const own = containerIps(container);
  for (const { cidr } of listAddresses(lab.host.route)) {
    const subnet = subnets.find(one => cidrContains(one, cidr.ip));
    if (subnet && own.length) return { host: cidr.ip, container: subnet.ip };
  }
  return undefined;
}

/** The capability argument replaces the configuration as a whole. */
function rateOf({ conf, runtimeConfig }: ConfiguredPlugin, key: string): number {
  const source = (runtimeConfig.bandwidth ?? conf) as Record<string, unknown>;
  const value = source[key];
  return typeof value === 'number' && value > 0 ? value : 0;
}

/** True unless lists of subnets, if any, exempt traffic with the address from the limit. */
function isLimited({ conf, runtimeConfig }: ConfiguredPlugin, ip: Ip): boolean {
  const lists = [conf, runtimeConfig.bandwidth].find(
    source => isObject(source) && (source.shapedSubnets || source.unshapedSubnets),
  );
  if (!isObject(lists)) return true;
  const covers = (list: unknown) =>
    Array.isArray(list) &&
    list.some(text => {
      const subnet = findCidr(String(text));
      return subnet !== undefined && cidrContains(subnet, ip);
    });
  const { shapedSubnets: shaped } = lists;
  return Array.isArray(shaped) && shaped.length ? covers(shaped) : !covers(lists.unshapedSubnets);
}
