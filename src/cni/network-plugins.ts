// Where do the plugins of a network keep files, and which addresses and devices are theirs?
import { decode, isObject, type JsonObject } from './json.ts';
import type { AddressRange, NeededDevice, PluginAbout, PluginCatalog, PluginDevice } from './plugin-about.ts';

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
