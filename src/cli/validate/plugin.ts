// What is wrong with the configuration of one plugin?
import { findOddKeys } from '../../chain/config/load.ts';
import { decode, type JsonObject } from '../../cni/json.ts';
import { type AddressRange, rangesIn } from '../../cni/plugin-about.ts';
import { ListedPlugin } from '../../cni/schemas.ts';
import { cidrContains, isSmallest, renderCidr, renderIp } from '../../net/ip.ts';
import { atKey, atValue, findShapeProblems, findUnknownKeys, type Path, type Problem } from './document.ts';
import type { Finding, Severity } from './finding.ts';
import type { NamedPlugin, PlacedPlugin } from './network.ts';

/**
 * Finds what a plugin's schema and rules refuse, and keys that are never read.
 * @param isForeign whether a third-party executable of that name exists, which may be less strict: what only ours refuses is a
 *   warning then, unless it has a schema of its own
 */
export function judgePlugin(plugin: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const shape = judgeShape(plugin, isForeign);
  const options = shape.some(({ severity }) => severity === 'error')
    ? judgeRest(plugin, isForeign)
    : [
        ...judgeOptions(plugin, isForeign),
        ...(shape.length ? [] : adviseOn(plugin, isForeign)),
        ...judgeGateways(plugin),
      ];
  return [...shape, ...options, ...judgeUnknownKeys(plugin), ...judgeReservedKeys(plugin)];
}

/** The addresses that a plugin and its IPAM plugin lease; none if their configuration is invalid. */
export function rangesOf({ plugin, ipam, conf }: PlacedPlugin): AddressRange[] {
  return [plugin, ipam].flatMap(one => (one?.about ? rangesIn(one.about, conf, one.type) : []));
}

function judgeShape(placed: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const { document, path, conf, plugin, ipam } = placed;
  const general = findShapeProblems(ListedPlugin, conf);
  const own = [plugin, ipam].flatMap(one => {
    if (one?.about === undefined) return [];
    const isGuess = isForeign(one.type) && !one.about.fromSchema;
    const severity: Severity = isGuess ? 'warning' : 'error';
    return findShapeProblems(one.about.config, conf).map(problem => ({ ...problem, severity }));
  });
  const all = [...general.map(problem => ({ ...problem, severity: 'error' as const })), ...own];
  return uniquePlaces(all).map(({ path: inner, message, severity }) => {
    return atValue(document, [...path, ...inner], [severity, 'shape', message]);
  });
}

function judgeOptions(plugin: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const { document, path, conf } = plugin;
  const judge = (one: NamedPlugin | undefined, home: Path): Finding[] => {
    if (one?.about?.validate === undefined || isForeign(one.type)) return [];
    try {
      one.about.validate(decode(one.about.config, conf, one.type), conf);
      return [];
    } catch (error) {
      const { message } = error as Error;
      return [atValue(document, [...path, ...namedIn(message, conf, home)], ['error', 'option', message])];
    }
  };
  return [...judge(plugin.plugin, []), ...judge(plugin.ipam, ['ipam'])];
}

/**
 * The options apart from those whose values were already refused, so that one look finds both. The IPAM plugin's are left out: its
 * addresses depend on each other.
 */
function judgeRest(plugin: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const { conf } = plugin;
  const about = plugin.plugin?.about;
  if (about === undefined) return [];
  const refused = findShapeProblems(about.config, conf).map(({ path: [key] }) => String(key).toLowerCase());
  if (refused.includes('ipam')) return [];
  const rest = Object.fromEntries(
    Object.entries(conf).filter(([key]) => !refused.includes(key.toLowerCase())),
  );
  if (findShapeProblems(about.config, rest).length) return [];
  const findings = judgeOptions({ ...plugin, conf: rest, ipam: undefined }, isForeign);
  // What is missing now was refused, not forgotten.
  return findings.filter(({ message }) => !refused.some(key => message.toLowerCase().includes(`"${key}"`)));
}

/** What is valid and does nothing, or not what it seems to. */
function adviseOn(placed: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const { document, path, conf, plugin, ipam } = placed;
  return [plugin, ipam].flatMap(one => {
    if (one?.about?.advise === undefined || isForeign(one.type)) return [];
    const advice = one.about.advise(decode(one.about.config, conf, one.type), conf);
    return advice.map(({ path: inner, message }) =>
      atValue(document, [...path, ...inner], ['warning', 'option', message]),
    );
  });
}

function judgeGateways(placed: PlacedPlugin): Finding[] {
  const { document, path, plugin } = placed;
  if (!plugin?.about?.needsGatewayInSubnet) return [];
  return rangesOf(placed).flatMap(({ path: inner, subnet, gateway }): Finding[] => {
    // A host's only address has its gateway elsewhere.
    if (!gateway || isSmallest(subnet) || cidrContains(subnet, gateway)) return [];
    const message = `gateway ${renderIp(gateway)} is outside of the subnet ${renderCidr(subnet)}: containers look for it on their link, where it needs a route back to them`;
    return [atValue(document, [...path, ...inner.slice(0, -1), 'gateway'], ['warning', 'option', message])];
  });
}

function judgeUnknownKeys(placed: PlacedPlugin): Finding[] {
  const { document, path, conf, plugin, ipam } = placed;
  const about = plugin?.about;
  // Arguments may be meant for other plugins, and the options of a third-party plugin are unknown.
  const open = ['args', 'runtimeConfig', ...(ipam?.about === undefined ? ['ipam'] : [])];
  const schemas = [about?.config ?? ListedPlugin, ...(ipam?.about ? [ipam.about.config] : [])];
  const problems = findUnknownKeys(schemas, conf, { open }).filter(problem => {
    return about !== undefined || problem.path.length > 1;
  });
  // Keys that only the runtime may set are reported separately.
  const odd = new Set(findOddKeys(conf, 'entry').map(one => one.path[0]));
  return problems
    .filter(problem => !odd.has(problem.path[0]))
    .map(problem => atKey(document, [...path, ...problem.path], ['warning', 'unknown-key', problem.message]));
}

function judgeReservedKeys({ document, path, conf }: PlacedPlugin): Finding[] {
  return findOddKeys(conf, 'entry').map(({ path: inner, problem }) => {
    return atKey(document, [...path, ...inner], ['warning', 'reserved-key', problem]);
  });
}

/** The general schema, the plugin's and its IPAM plugin's may all report the same mistake. */
function uniquePlaces<T extends Problem>(problems: readonly T[]): T[] {
  const byPlace = new Map<string, T>();
  for (const problem of problems) {
    const place = JSON.stringify(problem.path);
    if (!byPlace.has(place)) byPlace.set(place, problem);
  }
  return [...byPlace.values()];
}

/** Where the reader should look: at a value that the message names with its key, else at such a key, else at such a value. */
function namedIn(message: string, conf: JsonObject, home: Path): Path {
  const inside = home.reduce<unknown>((at, key) => (at as JsonObject)[key], conf) as JsonObject;
  const named = (key: Path[number] | undefined) => message.includes(`"${key}"`);
  const values = valuesIn(inside).filter(({ value }) => value.length > 2 && message.includes(value));
  const found =
    values.find(({ path }) => named(path.at(-1)))?.path ??
    Object.keys(inside).flatMap(key => (named(key) ? [[key]] : []))[0] ??
    values.find(({ path }) => path.at(-1) !== 'type')?.path;
  return [...home, ...(found ?? [])];
}

/** Texts and numbers below a value. */
function valuesIn(of: unknown, path: Path = []): { readonly path: Path; readonly value: string }[] {
  if (typeof of !== 'object' || of === null) return of === null ? [] : [{ path, value: String(of) }];
  return Object.entries(of).flatMap(([key, value]) => {
    return valuesIn(value, [...path, Array.isArray(of) ? Number(key) : key]);
  });
}
