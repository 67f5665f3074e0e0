// Which chains have a plugin that alone is struck, besides the full chain?

import fs from 'node:fs';
import type { Lab, Row } from '../helpers/netns.ts';

/** Makes the plugins of a chain from those of the full one. */
export type Reshape = (plugins: readonly Row[], lab: Lab) => readonly Row[] | Promise<readonly Row[]>;

interface StruckChain {
  readonly plugins: Reshape;
  /** The plugin that is struck, with its delegates. */
  readonly struck: 'first' | 'last';
}

/** The names are those of the plugins that are struck. */
export const CHAINS = {
  firewall: { plugins: full => [...full, { type: 'firewall' }], struck: 'last' },
  sbr: { plugins: full => [...full, { type: 'sbr' }], struck: 'last' },
  flannel: { plugins: withFlannel, struck: 'first' },
  ptp: {
    plugins: ([bridge, ...rest]) => [{ type: 'ptp', ipMasq: true, ipam: bridge?.ipam }, ...rest],
    struck: 'first',
  },
  tap: { plugins: full => [{ type: 'tap', ipam: full[0]?.ipam }, ...full.slice(3)], struck: 'first' },
  macvlan: {
    async plugins(full, lab) {
      await lab.outside();
      return [{ type: 'macvlan', master: 'outside0', ipam: full[0]?.ipam }, ...full.slice(3)];
    },
    struck: 'first',
  },
} as const satisfies Record<string, StruckChain>;

/** The bridge as flannel's delegate, with the same subnets. */
function withFlannel([bridge, ...plugins]: readonly Row[], { tmp }: Lab): Row[] {
  const subnetFile = `${tmp}/subnet.env`;
  fs.writeFileSync(subnetFile, FLANNEL_SUBNETS);
  const { ipam, ...delegate } = bridge as Row & { readonly ipam: Row };
  const { dataDir } = ipam;
  return [
    { type: 'flannel', subnetFile, dataDir: `${tmp}/flannel`, delegate, ipam: { dataDir } },
    ...plugins,
  ];
}

const FLANNEL_SUBNETS = `FLANNEL_NETWORK=10.88.0.0/16
FLANNEL_SUBNET=10.88.0.1/16
FLANNEL_IPV6_NETWORK=fd88::/48
FLANNEL_IPV6_SUBNET=fd88::1/64
FLANNEL_MTU=1450
FLANNEL_IPMASQ=false
`;
