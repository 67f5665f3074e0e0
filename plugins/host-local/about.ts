// What can tools know about host-local without running it?
import { type AddressPool, aboutPlugin } from '../../src/cni/plugin-about.ts';
import { CURRENT_VERSION } from '../../src/cni/version.ts';
import { HostLocalConf } from './config.ts';
import { planSets } from './plan.ts';
import { parseRange } from './range.ts';

/** The host-local plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'ipam',
  capabilities: ['ips', 'ipRanges'],
  config: HostLocalConf,
  idleWithout: ({ ipam }) => (ipam.subnet || ipam.ranges?.length ? undefined : 'ipRanges'),
  validate(conf) {
    const { subnet, ranges } = conf.ipam;
    // Without ranges of its own, it gets them from the runtime.
    if (subnet || ranges?.length) planSets(conf, CURRENT_VERSION);
  },
  pools: ({ ipam }) => [
    ...(ipam.subnet ? [poolOf({ ...ipam, subnet: ipam.subnet }, ['ipam', 'subnet'])] : []),
    ...(ipam.ranges ?? []).flatMap((set, i) =>
      set.map((range, j) => poolOf(range, ['ipam', 'ranges', i, j, 'subnet'])),
    ),
  ],
});

function poolOf(range: Parameters<typeof parseRange>[0], path: AddressPool['path']): AddressPool {
  const { subnet, start, end } = parseRange(range);
  return { path, subnet, start, end };
}
