// What does a plugin know about the networks that a list with it makes, for tools that write lists?
import type { Cidr } from '../net/cidr.ts';
import type { JsonObject } from './json.ts';

/** What is known of a network before its list is written. */
export interface NetworkPlan {
  /** Configuration of its IPAM plugin; undefined if its containers have no addresses. */
  readonly ipam: JsonObject | undefined;
  /** Its subnets, if they are known. */
  readonly subnets: readonly Cidr[];
  /** Name for a device of its own, which does not exist yet. */
  readonly ownDevice: string;
  /** Device of the node that it builds on; undefined for that of the default route. */
  readonly device: string | undefined;
  /** Whether ports will be published. */
  readonly ports: boolean;
}

/** A kind of network whose list begins with a plugin. */
export interface NetworkKind {
  /** One word for an option. */
  readonly name: string;
  /** What its containers reach, human-readable. */
  readonly text: string;
  /** Its containers are machines of the LAN that a device of the node belongs to, and their packets pass no rules of the node. */
  readonly onLan: boolean;
  /** A DHCP server of that LAN can tell its containers apart. */
  readonly mayUseDhcp: boolean;
  /** Its containers can answer the outside. */
  readonly answersOutside: boolean;
  /** The plugin's configuration, without its type. */
  configure(plan: NetworkPlan): JsonObject;
}
