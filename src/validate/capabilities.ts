// Do the plugins and the conflist agree on what the runtime may pass?
import { decode, isObject } from '../cni/json.ts';
import { didYouMean, findNearest } from '../cni/suggest.ts';
import { atKey, atValue } from './document.ts';
import type { Finding } from './finding.ts';
import type { NamedPlugin, PlacedPlugin } from './network.ts';

/** CONVENTIONS.md "Dynamic Plugin specific fields": the capabilities that runtimes are known to offer. */
const WELL_KNOWN = [
  'portMappings',
  'ipRanges',
  'bandwidth',
  'dns',
  'ips',
  'mac',
  'infinibandGUID',
  'deviceID',
  // Of a delegate runner, for its networks.
  'CNIDeviceInfoFile',
  'aliases',
  'cgroupPath',
  'io.kubernetes.cri.pod-annotations',
];

/** Finds capabilities that no plugin reads, and plugins that do nothing without an undeclared one. */
export function judgeCapabilities(plugin: PlacedPlugin): Finding[] {
  const declared = declaredBy(plugin);
  return [...judgeDeclared(plugin, declared), ...judgeIdle(plugin, declared)];
}

function judgeDeclared({ document, path, plugin, ipam }: PlacedPlugin, declared: Declared): Finding[] {
  const say = (name: string, message: string) =>
    atKey(document, [...path, 'capabilities', name], ['warning', 'capability', message]);
  const names = Object.keys(declared).filter(name => declared[name] === true);
  // The configuration is passed to the plugin and its IPAM plugin: unless both are known, it is unknown which capabilities are
  // read.
  if (plugin?.about === undefined || (ipam !== undefined && ipam.about === undefined)) {
    return names.flatMap(name => {
      const near = WELL_KNOWN.includes(name) ? undefined : findNearest(name, WELL_KNOWN);
      return near === undefined ? [] : [say(name, `no runtime passes "${name}"; did you mean "${near}"?`)];
    });
  }
  const known = [...plugin.about.capabilities, ...(ipam?.about?.capabilities ?? [])];
  const who = [plugin.type, ...(ipam ? [ipam.type] : [])].map(type => `"${type}"`).join(' nor ');
  return names
    .filter(name => !known.includes(name))
    .map(name => {
      const neither = ipam ? 'neither ' : '';
      const verb = ipam ? 'knows' : 'does not know';
      return say(name, `${neither}${who} ${verb} capability "${name}"${didYouMean(name, known)}`);
    });
}

function judgeIdle(plugin: PlacedPlugin, declared: Declared): Finding[] {
  const { document, path, conf } = plugin;
  const judge = (one: NamedPlugin | undefined, where: string): Finding[] => {
    if (one?.about?.idleWithout === undefined) return [];
    const { about, type } = one;
    let needed: string | undefined;
    try {
      needed = about.idleWithout?.(decode(about.config, conf, type));
    } catch {
      // Errors in the configuration are reported elsewhere.
    }
    // "false" is as explicit as "true".
    if (needed === undefined || declared[needed] !== undefined) return [];
    const message = `"${type}" has nothing to do: declare "capabilities": {"${needed}": true}, or configure it here`;
    return [atValue(document, [...path, where], ['warning', 'capability', message])];
  };
  return [...judge(plugin.plugin, 'type'), ...judge(plugin.ipam, 'ipam')];
}

type Declared = Readonly<Record<string, unknown>>;

function declaredBy({ conf }: PlacedPlugin): Declared {
  const key = Object.keys(conf).find(one => one.toLowerCase() === 'capabilities');
  const declared = key === undefined ? undefined : conf[key];
  return isObject(declared) ? declared : {};
}
