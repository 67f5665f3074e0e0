// Which owner does a lease file name?
import { findContainerIdProblem } from '../cni/env.ts';

/** Owner of a lease. Leases from before interface names were stored have no `ifname`. */
export interface Owner {
  readonly containerId: string;
  readonly ifname?: string;
}

/** Content of a lease file, byte for byte as the reference writes it: no newline at the end. */
export function renderOwner({ containerId, ifname }: Owner): string {
  return ifname === undefined ? containerId.trim() : `${containerId.trim()}\r\n${ifname}`;
}

/** The owner in a lease file, or undefined for an empty or unknown format. */
export function parseOwner(text: string): Owner | undefined {
  const [containerId = '', ifname, ...more] = text.trim().split('\r\n');
  if (more.length || findContainerIdProblem(containerId) !== undefined) return undefined;
  return ifname === undefined ? { containerId } : { containerId, ifname };
}

/** True for the same attachment. */
export function sameOwner(a: Owner, b: Owner): boolean {
  return a.containerId === b.containerId && a.ifname === b.ifname;
}

/** The attachment in human-readable form, for messages. */
export function renderAttachment({ containerId, ifname }: Owner): string {
  return `container "${containerId}", interface "${ifname}"`;
}
