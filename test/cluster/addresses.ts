// Which addresses do the machines, pods and services of a cluster have?

/** The network that connects the machines, and its gateway, which is outside of the cluster. */
export const MACHINES = { prefix: 24, outside: '10.210.0.254', control: '10.210.0.1' } as const;

/** A second network, beyond a router, which is the same gateway. */
export const BEYOND = { prefix: 24, outside: '10.211.0.254' } as const;

/** Pods of all nodes. */
export const PODS = '10.244.0.0/16';
/** Services, and the one of the API server. */
export const SERVICES = '10.96.0.0/16';
export const API_SERVICE = '10.96.0.1';

/** What one node has. */
export interface NodePlace {
  readonly name: string;
  readonly address: string;
  /** Its pods. */
  readonly pods: string;
}

/** Node `number` counts from 1. @param isBeyond whether it is on the network beyond the router */
export function nodePlace(number: number, isBeyond = false): NodePlace {
  return {
    name: `node${number}`,
    address: `10.${isBeyond ? 211 : 210}.0.${10 + number}`,
    pods: `10.244.${number}.0/24`,
  };
}

/** The gateway of a machine. */
export function gatewayOf(address: string): string {
  return address.startsWith('10.211.') ? BEYOND.outside : MACHINES.outside;
}

/** The first address of a node's pods: its bridge. */
export function firstOf(pods: string): string {
  return pods.replace(/0\/24$/, '1/24');
}

/** What flannel's daemon writes for the plugin `flannel` of a node. */
export function subnetFile({ pods }: NodePlace): string {
  return [
    `FLANNEL_NETWORK=${PODS}`,
    `FLANNEL_SUBNET=${firstOf(pods)}`,
    'FLANNEL_MTU=1500',
    'FLANNEL_IPMASQ=false',
    '',
  ].join('\n');
}
