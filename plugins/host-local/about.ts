// What can tools know about host-local without running it?
import { type AddressRange, aboutPlugin } from '../../src/cni/plugin-about.ts';
import { CURRENT_VERSION } from '../../src/cni/result.ts';
import type { IpRange } from '../../src/cni/schemas.ts';
import { leaseDirOf } from '../../src/ipam/lease-files.ts';
import { renderCidr } from '../../src/net/ip.ts';
import { HostLocalConf } from './config.ts';
import { parseRange, planSets } from './plan.ts';

export const about = aboutPlugin({
  kind: 'ipam',
  summary: 'allocates addresses from configured ranges and records on disk who holds which',
  capabilities: ['ips', 'ipRanges'],
  config: HostLocalConf,
  idleWithout: ({ ipam }) => (ipam.subnet || ipam.ranges?.length ? undefined : 'ipRanges'),
  validate(conf) {
    const { subnet, ranges } = conf.ipam;
    // Without ranges of its own, it gets them from the runtime.
    if (subnet || ranges?.length) planSets(conf, CURRENT_VERSION);
  },
  ipamFor: addresses =>
    addresses === 'server'
      ? undefined
      : { type: 'host-local', ranges: addresses.map(subnet => [{ subnet: renderCidr(subnet) }]) },
  rangesOf: ({ ipam }) => [
    ...(ipam.subnet ? [rangeOf({ ...ipam, subnet: ipam.subnet }, ['ipam', 'subnet'], 0)] : []),
    ...(ipam.ranges ?? []).flatMap((set, i) =>
      set.map((range, j) => rangeOf(range, ['ipam', 'ranges', i, j, 'subnet'], i + 1)),
    ),
  ],
  filesOf: (conf, network) => ({ leaseDir: leaseDirOf(conf, network) }),
});

function rangeOf(range: IpRange, path: AddressRange['path'], set: number): AddressRange {
  const { rangeStart = '', rangeEnd = '' } = range;
  const ends = rangeStart || rangeEnd ? ` ${rangeStart}-${rangeEnd}` : '';
  const list = range.addresses ? ` ${range.addresses.join(' ')}` : '';
  return { ...parseRange(range), path, set, text: `${range.subnet}${ends}${list}` };
}
