// Which loads are measured?
import type { Load } from './figures.ts';

const BLOCKS = { subnets: [{ ipv4: '10.64.0.0/14' }], blockSize: 64 };
const SINGLE = { subnets: [{ ipv4: '10.32.0.0/19' }], blockSize: 1, layout: 'flat' as const };

/** By name. The first two are those for which whereabouts and spiderpool publish figures. */
export const LOADS: Readonly<Record<string, Load>> = {
  '1,000 pods on 10 nodes, blocks': {
    nodes: 10,
    pods: 1000,
    networks: 1,
    atOnce: 8,
    pool: 'pods',
    spec: BLOCKS,
  },
  '1,000 pods on 10 nodes, single addresses': {
    nodes: 10,
    pods: 1000,
    networks: 1,
    atOnce: 8,
    pool: 'single',
    spec: SINGLE,
  },
  '128 pods with 16 networks on 4 nodes, blocks': {
    nodes: 4,
    pods: 128,
    networks: 16,
    atOnce: 8,
    pool: 'wide',
    spec: BLOCKS,
  },
  '128 pods with 16 networks on 4 nodes, single addresses': {
    ...{ nodes: 4, pods: 128, networks: 16, atOnce: 8, pool: 'wide-single' },
    spec: { ...SINGLE, subnets: [{ ipv4: '10.48.0.0/19' }] },
  },
};
