// What is known about a plugin without running it, such as where the plugins of a network keep files?

import type * as z from 'zod/mini';
import type { Cidr, Ip } from '../net/ip.ts';
import { attempt } from './errors.ts';
import { decode, isObject, type JsonObject, memberOf } from './json.ts';
import type { PortMapping } from './schemas.ts';

/** `main` creates the interface, `meta` works on what earlier plugins created, `ipam` is called by another plugin. */
export type PluginKind = 'main' | 'ipam' | 'meta';

/** A range of addresses that a plugin hands out, `start` to `end`, all in `subnet`. */
export interface AddressRange {
  /** Path of the subnet in the plugin's configuration (`["ipam", "subnet"]`). */
  readonly path: readonly (string | number)[];
  readonly subnet: Cidr;
  readonly start: Ip;
  readonly end: Ip;
  /** Parts of it that are not handed out, ascending: first and last address of each. */
  readonly except?: readonly (readonly [from: Ip, to: Ip])[];
  /** Not handed out, neither from this range nor from another of its set. */
  readonly gateway?: Ip | undefined;
  /** Ranges with the same number form a set. */
  readonly set: number;
  /** As configured: `10.1.0.0/24`, or with its ends. */
  readonly text: string;
}

/** Where a plugin keeps files of a network's attachments, besides what the runner records. */
interface PluginFiles {
  /** Has one file per leased address, in the format of src/ipam/lease-files.ts. */
  readonly leaseDir?: string;
  /** Has a JSON file `<container id>_<ifname>.json` per attachment, whose member `network` names the network. */
  readonly backupDir?: string;
}

interface PluginDevice {
  /** Undefined if every attachment has one of its own. */
  readonly name?: string;
  /** Bytes; 0 if it is that of the uplink. */
  readonly mtu: number;
}

/** A device of the host that must exist before a plugin can use it. */
interface NeededDevice {
  readonly name: string;
  /** Path of the name in the plugin's configuration (`["master"]`). */
  readonly path: readonly (string | number)[];
}

/** A chain of iptables that attachments share with each other, and with those of the reference's plugin. */
export interface SharedChain {
  readonly table: 'nat' | 'filter';
  readonly name: string;
}

/** What an attachment has from a plugin. */
export interface PluginEffects {
  /** Ports of the host that lead to the container. */
  readonly ports?: readonly PortMapping[];
  /** Limits in bits per second, seen from the container. */
  readonly rates?: { readonly ingressBits?: number; readonly egressBits?: number };
  /** Other rules for the attachment, human-readable: `masquerades traffic to other subnets`. */
  readonly policies?: readonly string[];
}

/** Something that a valid configuration probably does not mean. */
export interface PluginAdvice {
  /** Path in the plugin's configuration. */
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** A plugin's description of itself for tools that examine a conflist; never loaded when the plugin itself starts. */
export interface PluginAbout<S extends z.core.$ZodType = z.core.$ZodType> {
  readonly kind: PluginKind;
  /** Whether a `main` plugin works on the interface of an earlier one instead of its own, as it is configured. */
  readonly follows?: (conf: JsonObject) => boolean;
  /** What it does, after "it": `limits the rate of traffic to and from the container`. */
  readonly summary: string;
  /** It keeps one state for each attachment: a second entry of a list replaces what the first has set. */
  readonly once?: true;
  /** Keys of `runtimeConfig` that it reads. */
  readonly capabilities: readonly string[];
  /**
   * Configuration schema for authors. It may be stricter than the one used at run time, because DEL must still work with a
   * configuration that has become invalid.
   */
  readonly config: S;
  /** True when its author's schema beside the executable says all this: what that refuses, the executable refuses. */
  readonly fromSchema?: boolean;
  /** The capability without which this configuration has no effect. */
  idleWithout?(conf: z.output<S>): string | undefined;
  /** True when it adds to its IPAM plugin's configuration, which is incomplete as written. */
  readonly completesIpam?: boolean;
  /**
   * Refuses what ADD would refuse because of the configuration alone, without side effects.
   * @param entry the configuration as written
   * @throws Error
   */
  validate?(conf: z.output<S>, entry: JsonObject): void;
  /**
   * Says which valid options do nothing, or not what they seem to.
   * @param entry the configuration as written
   * @param earlier the configurations of the plugins before it in its list, as written
   */
  advise?(conf: z.output<S>, entry: JsonObject, earlier: readonly JsonObject[]): PluginAdvice[];
  /** The MTU that it gives the container's end of what another plugin made, and that end alone. */
  mtuOf?(conf: JsonObject): number | undefined;
  /** True when its containers cannot use a gateway outside of their subnet. */
  readonly needsGatewayInSubnet?: boolean;
  /**
   * The ranges that it hands out.
   * @throws Error when {@link validate} refuses the configuration
   */
  rangesOf?(conf: z.output<S>): AddressRange[];
  /**
   * The ranges that it hands out on this node at the moment, if the configuration alone does not say.
   * @param conf as written, perhaps invalid
   * @throws Error when its files cannot be read
   */
  heldRangesOf?(conf: JsonObject, network: string): AddressRange[];
  /**
   * What this node saw last of pools that nodes share; asks for nothing.
   * @param conf as written, perhaps invalid
   */
  seenPoolsOf?(conf: JsonObject, network: string): SeenPool[];
  /**
   * What nodes hold of the pools that they share, as their store says.
   * @param conf as written
   * @throws CniError when the configuration is invalid or the store cannot be reached
   */
  inventoryOf?(conf: JsonObject, network: string): Promise<PoolInventory[]>;
  /**
   * Gives back what this node holds of them, when Catena leaves it.
   * @returns names of what was given back, or would be in a dry run
   * @throws Error when they cannot be reached
   */
  giveBackOf?(conf: JsonObject, network: string, dryRun: boolean): Promise<string[]>;
  /**
   * Where it keeps files.
   * @param conf as written, perhaps invalid: files are there of attachments that were made with an earlier configuration
   */
  filesOf?(conf: JsonObject, network: string): PluginFiles;
  /** Its leases are notes of what a store of the cluster says, and only it frees an address there. */
  readonly notesLeases?: true;
  /**
   * Devices of the host that it makes.
   * @param conf as written, perhaps invalid
   */
  devicesOf?(conf: JsonObject): PluginDevice[];
  /**
   * Devices of the host that it needs and does not make: a master, an uplink.
   * @param conf as written, perhaps invalid
   */
  needsOf?(conf: JsonObject): NeededDevice[];
  /** Networks whose lists begin with it. */
  readonly networkKinds?: readonly NetworkKind[];
  /**
   * Its configuration as IPAM plugin for containers of these subnets, or for machines of a LAN with a server; undefined if it is for
   * something else.
   */
  ipamFor?(addresses: readonly Cidr[] | 'server'): JsonObject | undefined;
  /** Chains of iptables that outlast its attachments. */
  readonly sharedChains?: readonly SharedChain[];
  /**
   * What an attachment has from it, without a look at the kernel.
   * @param request as its ADD received it, perhaps invalid
   * @throws Error when the request cannot be decoded
   */
  effectsOf?(request: JsonObject): PluginEffects;
  /**
   * Who can reach whom over the interface: whole sentences, without a full stop.
   * @param request as its ADD would receive it, perhaps invalid
   * @throws Error when the request cannot be decoded
   */
  reachOf?(request: JsonObject): readonly string[];
}

/** A pool of addresses that nodes share. */
export interface PoolInventory {
  readonly pool: string;
  /** Addresses of each family in a block. */
  readonly blockSize: number;
  /** Blocks that nodes can claim, and those that they have claimed. */
  readonly blocks: number;
  readonly claimed: number;
  /** By name. Of its blocks, some may be of a node that seems to have vanished, or kept for a claim or a name. */
  readonly nodes: readonly {
    readonly node: string;
    readonly blocks: number;
    readonly orphaned: number;
    readonly kept: number;
  }[];
}

/** Blocks of a pool, as a node saw them when it last looked at all of them. */
export interface SeenPool {
  readonly pool: string;
  readonly blocks: number;
  readonly claimed: number;
  readonly nodes: number;
}

/** Declares what is known about a plugin: returns its argument with the types tied together. */
export function aboutPlugin<S extends z.core.$ZodType>(about: PluginAbout<S>): PluginAbout<S> {
  return about;
}

/**
 * The MTU of a device, in bytes, by the value of a plugin's `mtu`: 0 or nothing means the kernel's default for Ethernet. 0 for `auto`, which
 * always fits.
 */
export function mtuOf(configured: unknown): number {
  if (configured === 'auto') return 0;
  return typeof configured === 'number' && configured > 0 ? configured : ETHERNET_MTU;
}

/** linux/if_ether.h: ETH_DATA_LEN. */
const ETHERNET_MTU = 1500;

/** The plugins built into an executable, as tools see them. */
export interface PluginCatalog {
  /** Types of all plugins, sorted. */
  readonly types: readonly string[];
  /** Further names of the delegate runner. */
  readonly aliases?: readonly string[];
  /** What is known about a plugin; undefined for a type that is not ours. */
  find(type: string): Promise<PluginAbout> | undefined;
  /** Published JSON Schemas by name: one for each type, and `conflist`. */
  schemas(): Promise<Readonly<Record<string, JsonObject>>>;
  /** Those of what commands print, by kind. */
  answerSchemas?(): Promise<Readonly<Record<string, JsonObject>>>;
}

/** What is known of a network before its list is written. */
interface NetworkPlan {
  /** Configuration of its IPAM plugin; undefined if its containers have no addresses. */
  readonly ipam: JsonObject | undefined;
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

/** A network and its plugins as configured, perhaps invalid. */
export interface NetworkPlugins {
  readonly name: string;
  readonly plugins: readonly { readonly conf: JsonObject }[];
}

/** What is known about a type of plugin, loaded beforehand; undefined for a type that is not ours. */
export type FindAbout = (type: string) => PluginAbout | undefined;

export async function loadAbouts(find: PluginCatalog['find'], types: readonly string[]): Promise<FindAbout> {
  const abouts = await Promise.all([...new Set(types)].map(async type => [type, await find(type)] as const));
  const known = new Map(abouts);
  return type => known.get(type);
}

/** The types that a network uses, those of IPAM plugins included. */
export function typesOf({ plugins }: NetworkPlugins): string[] {
  return plugins.flatMap(({ conf }) => typesIn(conf));
}

export function leaseDirsOf(list: NetworkPlugins, find: FindAbout): string[] {
  return unique(described(list, find).map(({ about, conf }) => about.filesOf?.(conf, list.name).leaseDir));
}

export function notesLeases(list: NetworkPlugins, find: FindAbout): boolean {
  return described(list, find).some(({ about }) => about.notesLeases);
}

export function backupDirsOf(list: NetworkPlugins, find: FindAbout): string[] {
  return unique(described(list, find).map(({ about, conf }) => about.filesOf?.(conf, list.name).backupDir));
}

/** The ranges that IPAM plugins of a network lease from; those of an invalid configuration are left out. */
export function rangesOf(
  list: NetworkPlugins,
  find: FindAbout,
): { readonly range: AddressRange; readonly leaseDir: string | undefined }[] {
  return described(list, find).flatMap(({ type, about, conf }) => {
    const { leaseDir } = about.filesOf?.(conf, list.name) ?? {};
    return rangesIn(about, conf, type).map(range => ({ range, leaseDir }));
  });
}

/** Like {@link rangesOf}, with those that this node holds of a cluster's pools. */
export function leasedRangesOf(list: NetworkPlugins, find: FindAbout): ReturnType<typeof rangesOf> {
  const held = described(list, find).flatMap(({ about, conf }) => {
    const { leaseDir } = about.filesOf?.(conf, list.name) ?? {};
    const ranges = attempt(() => about.heldRangesOf?.(conf, list.name)) ?? [];
    return ranges.map(range => ({ range, leaseDir }));
  });
  return [...rangesOf(list, find), ...held];
}

/** Pools that nodes share, as this node saw them last. */
export function seenPoolsOf(list: NetworkPlugins, find: FindAbout): SeenPool[] {
  const read = ({ about, conf }: Described) => attempt(() => about.seenPoolsOf?.(conf, list.name)) ?? [];
  return described(list, find).flatMap(read);
}

/** Pools that nodes share, as their stores say. @throws CniError when one cannot be reached */
export async function inventoriesOf(list: NetworkPlugins, find: FindAbout): Promise<PoolInventory[]> {
  const all: PoolInventory[] = [];
  for (const { about, conf } of described(list, find))
    all.push(...((await about.inventoryOf?.(conf, list.name)) ?? []));
  return all;
}

/** Gives back what this node holds of pools. @returns names @throws Error when one cannot be reached */
export async function giveBackOf(list: NetworkPlugins, find: FindAbout, dryRun: boolean): Promise<string[]> {
  const all: string[] = [];
  for (const { about, conf } of described(list, find))
    all.push(...((await about.giveBackOf?.(conf, list.name, dryRun)) ?? []));
  return all;
}

/** The ranges of one plugin; none if its configuration is invalid. */
export function rangesIn(about: PluginAbout, conf: JsonObject, type: string): readonly AddressRange[] {
  return attempt(() => about.rangesOf?.(decode(about.config, conf, type))) ?? [];
}

/** Devices of the host that plugins of a network make, with the type of the plugin. */
export function devicesOf(
  list: NetworkPlugins,
  find: FindAbout,
): (PluginDevice & { readonly type: string })[] {
  return described(list, find).flatMap(({ type, about, conf }) =>
    (about.devicesOf?.(conf) ?? []).map(device => ({ ...device, type })),
  );
}

/** The MTU that a plugin of the network gives the container's end alone, after both ends were made, with the type of that plugin. */
export function innerMtuOf(
  list: NetworkPlugins,
  find: FindAbout,
): { readonly type: string; readonly mtu: number } | undefined {
  const all = described(list, find).flatMap(({ type, about, conf }) => {
    const mtu = about.mtuOf?.(conf);
    return mtu ? [{ type, mtu }] : [];
  });
  return all.at(-1);
}

/** Devices of the host that plugins of a network need and do not make, with the type of the plugin. */
export function needsOf(list: NetworkPlugins, find: FindAbout): (NeededDevice & { readonly type: string })[] {
  return described(list, find).flatMap(({ type, about, conf }) =>
    (about.needsOf?.(conf) ?? []).map(device => ({ ...device, type })),
  );
}

interface Described {
  readonly type: string;
  readonly about: PluginAbout;
  readonly conf: JsonObject;
}

/** Every plugin that is ours, with its configuration: an IPAM plugin gets that of the plugin that calls it. */
function described({ plugins }: NetworkPlugins, find: FindAbout): Described[] {
  return plugins.flatMap(({ conf }) =>
    typesIn(conf).flatMap(type => {
      const about = find(type);
      return about === undefined ? [] : [{ type, about, conf }];
    }),
  );
}

/** Types of a plugin's entry in a list: its own, and that of the IPAM plugin that it calls. */
export function typesIn(conf: JsonObject): string[] {
  return [typeIn(conf), ipamTypeIn(conf)].flatMap(type => type ?? []);
}

/** The type of the IPAM plugin that a plugin's entry or request names. */
export function ipamTypeIn(conf: JsonObject): string | undefined {
  const ipam = memberOf(conf, 'ipam');
  return isObject(ipam) ? typeIn(ipam) : undefined;
}

function typeIn(conf: JsonObject): string | undefined {
  const type = memberOf(conf, 'type');
  return typeof type === 'string' && type !== '' ? type : undefined;
}

function unique(dirs: readonly (string | undefined)[]): string[] {
  return [...new Set(dirs)].filter(dir => dir !== undefined);
}

/** The file beside the executable of a plugin: a JSON Schema of its entry in a list. */
export function schemaFileName(type: string): string {
  return `${type}.schema.json`;
}

/**
 * The annotation of such a schema with what a JSON Schema has no keyword for: `{"kind": "meta", "capabilities": ["mac"]}`. Its
 * `description` says what the plugin does.
 */
export const PLUGIN_KEYWORD = 'x-catena';
