// What is a probe, and what does it know about the tried chain?
import type { JsonObject } from '../../cni/json.ts';
import type { Result } from '../../cni/result.ts';
import { findCidr } from '../../net/cidr.ts';
import type { Ip } from '../../net/ip.ts';
import { listAddresses, RT_SCOPE_UNIVERSE } from '../../netlink/rtnl/addr.ts';
import type { Lab, Place } from '../lab.ts';

/** A configured plugin: its entry of the conflist, and its capability arguments. */
export interface ConfiguredPlugin {
  readonly type: string;
  readonly conf: JsonObject;
  readonly runtimeConfig: JsonObject;
}

/** A container to which a chain has been applied. */
export interface Attached {
  readonly place: Place;
  readonly result: Result;
}

/** Everything that promises can be derived from. */
export interface Scene {
  readonly lab: Lab;
  readonly plugins: readonly ConfiguredPlugin[];
  readonly ifname: string;
  readonly container: Attached;
  /** A second container on the same network; undefined when it could not be attached. */
  readonly neighbour: Attached | undefined;
  /** Kernel parameters of the fake host before anything ran, as paths below /proc/sys. */
  readonly sysctlsBefore: ReadonlyMap<string, string | undefined>;
}

/** Whether a promise was kept. `skipped` is for what a lab cannot determine. */
export interface Finding {
  readonly outcome: 'ok' | 'failed' | 'skipped';
  /** What was observed, human-readable. */
  readonly seen: string;
}

/** Something that the chain promises, and how to verify it. */
export interface Probe {
  /** Human-readable: `gateway 10.1.0.1 answers the container`. */
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

/** The addresses assigned to a place, without loopback and link-local ones. */
export function placeIps({ route }: Place): Ip[] {
  const given = listAddresses(route).filter(({ scope }) => scope === RT_SCOPE_UNIVERSE);
  return given.map(({ cidr }) => cidr.ip);
}

/** `ok` or `failed`, with what was observed. */
export function finding(holds: boolean, seen: string): Finding {
  return { outcome: holds ? 'ok' : 'failed', seen };
}
