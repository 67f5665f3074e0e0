// What is a probe, and what does it get to know about the chain that was run?
import type { JsonObject } from '../../cni/json.ts';
import type { Result } from '../../cni/result.ts';
import { findCidr } from '../../net/cidr.ts';
import type { Ip } from '../../net/ip.ts';
import { listAddresses, RT_SCOPE_UNIVERSE } from '../../netlink/rtnl/addr.ts';
import type { Lab, Place } from '../lab.ts';

/** A link as it was configured: its entry of the list, and what it got at run time. */
export interface ConfiguredLink {
  readonly type: string;
  readonly conf: JsonObject;
  readonly runtimeConfig: JsonObject;
}

/** A container that a chain has been run for. */
export interface Attached {
  readonly place: Place;
  readonly result: Result;
}

/** All that promises can be made of. */
export interface Scene {
  readonly lab: Lab;
  readonly links: readonly ConfiguredLink[];
  readonly ifname: string;
  readonly container: Attached;
  /** A second container on the same network; undefined when it could not be attached. */
  readonly neighbour: Attached | undefined;
  /** Kernel parameters of the fake host before anything ran, as paths below /proc/sys. */
  readonly sysctlsBefore: ReadonlyMap<string, string | undefined>;
}

/** How a promise held. `skipped` is for what a lab cannot know. */
export interface Finding {
  readonly outcome: 'ok' | 'failed' | 'skipped';
  /** What was observed, for people. */
  readonly seen: string;
}

/** Something the chain promises, and how to see whether it is so. */
export interface Probe {
  /** For people: `gateway 10.1.0.1 answers the container`. */
  readonly what: string;
  run(): Finding;
}

/** The addresses that a result gives to interfaces in the container. */
export function containerIps({ result }: Attached): Ip[] {
  const { ips = [], interfaces = [] } = result;
  return ips.flatMap(({ address, interface: index }) => {
    const own = index === undefined || index < 0 ? undefined : interfaces[index];
    const cidr = findCidr(address);
    return cidr && (own === undefined || own.sandbox) ? [cidr.ip] : [];
  });
}

/** The addresses that somebody gave to a place: loopback and link-local ones are left out. */
export function placeIps({ route }: Place): Ip[] {
  const given = listAddresses(route).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
  return given.map(({ cidr }) => cidr.ip);
}

/** `ok` with what was seen, or `failed` with why. */
export function finding(holds: boolean, seen: string): Finding {
  return { outcome: holds ? 'ok' : 'failed', seen };
}
