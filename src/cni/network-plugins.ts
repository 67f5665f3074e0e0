// Where do the plugins of a network keep files, and which addresses and devices are theirs?
import { decode, isObject, type JsonObject } from './json.ts';
import type {
  AddressRange,
  NeededDevice,
  PluginAbout,
  PluginCatalog,
  PluginDevice,
  PoolInventory,
  SeenPool,
} from './plugin-about.ts';

/** A network and its plugins as configured, perhaps invalid. */
export interface NetworkPlugins {
  readonly name: string;
  readonly plugins: readonly { readonly conf: JsonObject }[];
}

/** What is known about a type of plugin, loaded beforehand; undefined for a type that is not ours. */
export type FindAbout = (type: string) => PluginAbout | undefined;

/** Loads what is known about plugins. */
export async function loadAbouts(find: PluginCatalog['find'], types: readonly string[]): Promise<FindAbout> {
  const abouts = await Promise.all([...new Set(types)].map(async type => [type, await find(type)] as const));
  const known = new Map(abouts);
  return type => known.get(type);
}

/** The types that a network uses, those of IPAM plugins included. */
export function typesOf({ plugins }: NetworkPlugins): string[] {
  return plugins.flatMap(({ conf }) => typesIn(conf));
}

/** Lease directories of a network. */
export function leaseDirsOf(list: NetworkPlugins, find: FindAbout): string[] {
  return unique(described(list, find).map(({ about, conf }) => about.filesOf?.(conf, list.name).leaseDir));
}

/** Directories with backups of attachments to a network, and to others. */
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
    return tried(() => about.heldRangesOf?.(conf, list.name)).map(range => ({ range, leaseDir }));
  });
  return [...rangesOf(list, find), ...held];
}

/** Pools that nodes share, as this node saw them last. */
export function seenPoolsOf(list: NetworkPlugins, find: FindAbout): SeenPool[] {
  return described(list, find).flatMap(({ about, conf }) =>
    tried(() => about.seenPoolsOf?.(conf, list.name)),
  );
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

function tried<T>(read: () => T[] | undefined): T[] {
  try {
    return read() ?? [];
  } catch {
    return [];
  }
}

/** The ranges of one plugin; none if its configuration is invalid. */
export function rangesIn(about: PluginAbout, conf: JsonObject, type: string): readonly AddressRange[] {
  try {
    return about.rangesOf?.(decode(about.config, conf, type)) ?? [];
  } catch {
    return [];
  }
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

/** Every plugin that is ours, with its configuration: an IPAM plugin gets that of the plugin that calls it. */
function described(
  { plugins }: NetworkPlugins,
  find: FindAbout,
): { readonly type: string; readonly about: PluginAbout; readonly conf: JsonObject }[] {
  return plugins.flatMap(({ conf }) =>
    typesIn(conf).flatMap(type => {
      const about = find(type);
      return about === undefined ? [] : [{ type, about, conf }];
    }),
  );
}

function typesIn({ type, ipam }: JsonObject): string[] {
  return [type, isObject(ipam) ? ipam.type : undefined].filter(
    (one): one is string => typeof one === 'string' && one !== '',
  );
}

function unique(dirs: readonly (string | undefined)[]): string[] {
  return [...new Set(dirs)].filter(dir => dir !== undefined);
}
