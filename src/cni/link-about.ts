// What can be known of a link without running it?
import type * as z from 'zod/mini';
import type { Cidr } from '../net/cidr.ts';
import type { Ip } from '../net/ip.ts';
import type { JsonObject } from './json.ts';

/** `main` makes the interface, `meta` works on what earlier links made, `ipam` is called by another link. */
export type LinkKind = 'main' | 'ipam' | 'meta';

/** Addresses that a link hands out, `start` to `end`, all of `subnet`. */
export interface AddressPool {
  /** Where the subnet stands in the link's configuration (`["ipam", "subnet"]`). */
  readonly path: readonly (string | number)[];
  readonly subnet: Cidr;
  readonly start: Ip;
  readonly end: Ip;
}

/** What a link says of itself to tools that judge a list; the link's own start never loads it. */
export interface LinkAbout<S extends z.core.$ZodType = z.core.$ZodType> {
  readonly kind: LinkKind;
  /** Keys of `runtimeConfig` that it reads. */
  readonly capabilities: readonly string[];
  /**
   * Schema of its configuration for those who write one. It may be stricter than the one it runs with, which lets a
   * configuration that went bad still be taken down.
   */
  readonly config: S;
  /** The capability without which this configuration asks for nothing. */
  idleWithout?(conf: z.output<S>): string | undefined;
  /** It adds to the configuration of its IPAM plugin, which is not whole as it is written. */
  readonly completesIpam?: boolean;
  /**
   * Refuses what ADD would refuse for the configuration alone, touching nothing.
   * @param entry the configuration as it was written
   * @throws Error
   */
  validate?(conf: z.output<S>, entry: JsonObject): void;
  /** What it hands out; called with a configuration that {@link validate} takes. */
  pools?(conf: z.output<S>): AddressPool[];
}

/** Names what is known of a link; returns its argument with the types tied together. */
export function aboutLink<S extends z.core.$ZodType>(about: LinkAbout<S>): LinkAbout<S> {
  return about;
}

/** The links that come with an executable, as its tools see them. */
export interface LinkCatalog {
  /** Types of all links, sorted. */
  readonly types: readonly string[];
  /** What is known of a link; undefined for a type that is not ours. */
  find(type: string): Promise<LinkAbout> | undefined;
  /** Published JSON Schemas by name: one for each type, and `conflist`. */
  schemas(): Promise<Readonly<Record<string, JsonObject>>>;
}
