// How does host-device of both sides handle its options and a device that is not where it was?
//
// Debian's containernetworking-plugins has no tap.

import { FAILURE, type Ground, LIFE, LIFE_WITHOUT_CHECK, type Probe, type TwinRow } from '../row.ts';
import { both, HOST_LOCAL, ipTool, V4 } from './parts.ts';

const MAC = '02:00:00:00:00:07';
const DEVICE = { type: 'host-device', device: 'up0' };
const IPAM_V4 = { ...HOST_LOCAL, ranges: [V4] };

/**
 * A device of the host without anything that only we restore. It has no carrier, and none that could come a moment later: what the
 * kernel says of a veth without one depends on when it looks.
 */
async function device(ground: Ground): Promise<void> {
  await ipTool(ground, 'tuntap add mode tap name up0', `link set up0 address ${MAC}`);
}

/** What is at home after DEL. */
const AT_HOME: Probe = {
  probe: 'at home',
  async ask({ lab }) {
    const links = await lab.ip(lab.host, 'link', 'show');
    return links.map(({ ifname, address }) => [ifname, ifname === 'up0' ? address : '']).sort();
  },
};

const VERSIONS: readonly TwinRow[] = ['0.3.1', '0.4.0', '1.0.0'].map(cniVersion => ({
  name: `host-device, version ${cniVersion}`,
  cniVersion,
  plugins: [{ ...DEVICE, ipam: IPAM_V4 }],
  prepare: device,
  steps: cniVersion === '0.3.1' ? LIFE_WITHOUT_CHECK.slice(0, 2) : LIFE.slice(0, 3),
}));

/** Rows for host-device. */
export const DEVICE_ROWS: readonly TwinRow[] = [
  ...VERSIONS,
  {
    name: 'host-device, both families, routes',
    plugins: [{ ...DEVICE, ipam: { ...both(), routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] } }],
    async prepare(ground) {
      await ipTool(ground, `link add up0 address ${MAC} type veth peer far0`, 'link set far0 up');
    },
    // The state that the far end shows after DEL depends on when the kernel looked.
    steps: ['ADD', 'CHECK'],
  },
  {
    name: 'host-device, hwaddr, no IPAM',
    plugins: [{ type: 'host-device', hwaddr: MAC }],
    prepare: device,
    steps: ['ADD', 'DEL', AT_HOME],
  },
  {
    name: 'host-device, another name in the container',
    plugins: [{ ...DEVICE, ipam: IPAM_V4 }],
    prepare: device,
    steps: [
      { verb: 'ADD', ifname: 'net1' },
      { verb: 'CHECK', ifname: 'net1' },
      { verb: 'DEL', ifname: 'net1' },
      AT_HOME,
    ],
  },
  { name: 'host-device, no such device', plugins: [{ ...DEVICE, ipam: IPAM_V4 }], steps: ['ADD'] },
  {
    name: 'host-device, no key for the device',
    plugins: [{ type: 'host-device' }],
    steps: FAILURE.slice(0, 1),
  },
];
