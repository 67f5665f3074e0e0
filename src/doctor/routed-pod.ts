// What do checks know of a container that the node routes for?
import type { NodePort } from '../node/model.ts';

/** An address of a container that the node is a router for. */
export interface RoutedPod {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
  readonly family: 4 | 6;
  /** Without prefix length. */
  readonly address: string;
  /** The device of the host through which packets reach it: a bridge, or one end of a veth pair. */
  readonly device: string;
  /** The port of the bridge that leads to it, if the device is a bridge. */
  readonly port?: string;
  /** Of its interface, in bytes; undefined if that is not known. */
  readonly mtu?: number;
  readonly ports: readonly NodePort[];
}

/** `3 containers of network "podnet"`, `containers of networks "a" and "b"`. */
export function namePods(pods: readonly Pick<RoutedPod, 'network' | 'containerId'>[]): string {
  const containers = new Set(pods.map(({ containerId }) => containerId)).size;
  const networks = [...new Set(pods.map(({ network }) => `"${network}"`))];
  const count = `${containers} container${containers === 1 ? '' : 's'}`;
  return `${count} of network${networks.length === 1 ? '' : 's'} ${networks.join(', ')}`;
}
