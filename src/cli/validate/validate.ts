// What is wrong with a conflist, or with the conflists of a directory?
import { statSync } from 'node:fs';
import { basename } from 'node:path';
import { findConfFiles, findOddKeys, type OnSkipped } from '../../chain/config/load.ts';
import { attempt, CniError, ErrorCode } from '../../cni/errors.ts';
import { decode, didYouMean, findNearest, isObject, type JsonObject, memberOf } from '../../cni/json.ts';
import { type AddressRange, type PluginCatalog, rangesIn } from '../../cni/plugin-about.ts';
import { ListedPlugin } from '../../cni/schemas.ts';
import { cidrContains, cidrsOverlap, isSmallest, renderCidr, renderIp, sameIp } from '../../net/ip.ts';
import { atValue, findShapeProblems, findUnknownKeys, type Path, type Problem } from './document.ts';
import type { Executables } from './executables.ts';
import type { Finding, Report, Severity } from './finding.ts';
import {
  atKeyIn,
  inPlugin,
  type PlacedNetwork,
  type PlacedPlugin,
  type ReadNetwork,
  readNetwork,
} from './network.ts';

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
function judgeCapabilities(placed: PlacedPlugin): Finding[] {
  const given = memberOf(placed.conf, 'capabilities');
  const declared = isObject(given) ? given : {};
  return [...judgeDeclared(placed, declared), ...judgeIdle(placed, declared)];
}

function judgeDeclared(placed: PlacedPlugin, declared: JsonObject): Finding[] {
  const { plugin, ipam } = placed;
  const say = (name: string, message: string) =>
    atKeyIn(placed, ['capabilities', name], ['warning', 'capability', message]);
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
  const unknown = names.filter(name => !known.includes(name));
  return unknown.map(name => {
    const words = ipam ? `neither ${who} knows` : `${who} does not know`;
    return say(name, `${words} capability "${name}"${didYouMean(name, known)}`);
  });
}

function judgeIdle(placed: PlacedPlugin, declared: JsonObject): Finding[] {
  return placed.named.flatMap(({ about, type, home: [where = 'type'] }) => {
    // Errors in the configuration are reported elsewhere.
    const needed = attempt(() => about?.idleWithout?.(decode(about.config, placed.conf, type)));
    // "false" is as explicit as "true".
    if (needed === undefined || declared[needed] !== undefined) return [];
    const message = `"${type}" has nothing to do: declare "capabilities": {"${needed}": true}, or configure it here`;
    return inPlugin(placed, [where], ['warning', 'capability', message]);
  });
}

/** Finds names that several files use. @param networks in the order in which a runtime reads them */
function judgeNames(networks: readonly PlacedNetwork[]): Finding[] {
  return networks.flatMap((network, i) => {
    const first = networks.findIndex(other => other.name === network.name);
    const winner = networks[first];
    if (network.name === undefined || first === i || winner === undefined) return [];
    const { document } = network;
    const loses = `network "${network.name}" is also defined in "${winner.document.file}"`;
    // Lookup by name takes conflists before single configurations; container runtimes go by file names.
    const agreed = basename(winner.document.file) < basename(document.file);
    const message = agreed
      ? `${loses}, which is read first: this file is never used`
      : `${loses}: by network name the other file is found; runtimes that select by file name use this one`;
    return [atValue(document, ['name'], ['error', 'duplicate-name', message])];
  });
}

interface PlacedRange {
  readonly network: PlacedNetwork;
  readonly placed: PlacedPlugin;
  readonly range: AddressRange;
}

/** Finds subnets that several networks lease from. */
function judgeSubnets(networks: readonly PlacedNetwork[]): Finding[] {
  const ranges = networks.flatMap(network => {
    return network.plugins.flatMap(placed => rangesOf(placed).map(range => ({ network, placed, range })));
  });
  return ranges.flatMap((one, i) => {
    return ranges.slice(0, i).flatMap(other => {
      if (other.network.name === one.network.name || !clash(one, other)) return [];
      const { file, line } = inPlugin(other.placed, other.range.path, ['warning', 'overlap', '']);
      const message =
        `subnet ${renderCidr(one.range.subnet)} overlaps ${renderCidr(other.range.subnet)}` +
        ` of network "${other.network.name}" ("${file}" line ${line})`;
      return inPlugin(one.placed, one.range.path, ['warning', 'overlap', message]);
    });
  });
}

/** Two networks may share a subnet if each has its own part of it. */
function clash({ range: a }: PlacedRange, { range: b }: PlacedRange): boolean {
  if (!cidrsOverlap(a.subnet, b.subnet)) return false;
  const shared = sameIp(a.subnet.ip, b.subnet.ip) && a.subnet.prefix === b.subnet.prefix;
  return !shared || (a.start.value <= b.end.value && b.start.value <= a.end.value);
}

/**
 * Checks one file, or every file of a directory that a runtime would read, and whether they are compatible.
 * @throws CniError 5 if the path does not exist
 */
export async function validatePath(
  path: string,
  catalog: PluginCatalog,
  executables: Executables,
): Promise<Report> {
  const findings: Finding[] = [];
  const files = filesAt(path, (file, problem) => {
    const message = `skipping the entry: ${problem}`;
    findings.push({ file, line: 1, column: 1, severity: 'warning', rule: 'unreadable', message });
  });
  const networks: PlacedNetwork[] = [];
  for (const file of files) {
    const read = await readNetwork(file, catalog);
    findings.push(...(await judgeFile(read, executables)));
    if (read.network) networks.push(read.network);
  }
  findings.push(...judgeNames(networks), ...judgeSubnets(networks));
  return { files: files.length, findings: inOrder(findings, files) };
}

function filesAt(path: string, onSkipped: OnSkipped): string[] {
  try {
    return statSync(path).isDirectory() ? findConfFiles(path, onSkipped) : [path];
  } catch (cause) {
    throw new CniError(ErrorCode.ioFailure, `Cannot read "${path}": ${(cause as Error).message}`, { cause });
  }
}

async function judgeFile(
  { network, findings, refusal }: ReadNetwork,
  executables: Executables,
): Promise<Finding[]> {
  if (network === undefined) return findings;
  const inside = network.plugins.flatMap((placed, index) => [
    ...judgePlugin(placed, network.plugins.slice(0, index), executables.isForeign),
    ...judgeCapabilities(placed),
    ...judgePlace(placed, index, network.plugins),
  ]);
  const all = [...findings, ...inside, ...judgeMissingVersion(network), ...judgeLongName(network)];
  // The runtime's own error is reported only if no finding explains it.
  const explained = all.some(({ severity, rule }) => severity === 'error' && rule === 'shape');
  const shown = refusal && (!explained || refusal.rule === 'version');
  return [...all, ...(shown ? [refusal] : []), ...(await executables.judge(network))];
}

function judgeMissingVersion({ document }: PlacedNetwork): Finding[] {
  const { cniVersion, cniVersions } = document.value;
  if ((cniVersion !== undefined && cniVersion !== '') || cniVersions !== undefined) return [];
  const message = '"cniVersion" is missing: assuming 0.1.0, which has neither CHECK nor GC';
  return [atValue(document, ['cniVersion'], ['warning', 'version', message])];
}

/** Runtimes name the file of a result `<network>-<container id>-<interface>`: 255 bytes, less 64 digits, 15 of an interface, and dashes. */
const LONGEST_NAME = 255 - 64 - 15 - 2;

/** nft loads comments of 127 characters: `catena:<network>/~<digest of the container>/<interface>`, a digest of 32 digits. */
const LONGEST_NOTED = 127 - 'catena:/~/'.length - 32 - 15;

function judgeLongName({ document }: PlacedNetwork): Finding[] {
  const { name } = document.value;
  if (typeof name !== 'string' || name.length <= LONGEST_NOTED) return [];
  const [most, why] =
    name.length > LONGEST_NAME
      ? [LONGEST_NAME, 'runtimes cannot write the results of containers, whose files are named after it']
      : [
          LONGEST_NOTED,
          'nft may refuse to load a ruleset that it has saved, whose comments name the network',
        ];
  const message = `"name" has ${name.length} characters: with more than ${most}, ${why}`;
  return [atValue(document, ['name'], ['warning', 'shape', message])];
}

/** By file in reading order, plugin files after their conflist, then by position. */
function inOrder(findings: readonly Finding[], files: readonly string[]): Finding[] {
  const rank = ({ file }: Finding) => (files.indexOf(file) + files.length + 1) % (files.length + 1);
  return [...findings].sort((a, b) => {
    const byFile = rank(a) - rank(b) || (a.file < b.file ? -1 : a.file > b.file ? 1 : 0);
    return byFile || a.line - b.line || a.column - b.column;
  });
}

/** Finds a plugin in the wrong position; the right position of a third-party plugin is unknown. */
function judgePlace(placed: PlacedPlugin, index: number, plugins: readonly PlacedPlugin[]): Finding[] {
  const { plugin, conf } = placed;
  if (plugin?.about === undefined) return [];
  const { type, about } = plugin;
  if (about.follows?.(conf)) return [];
  const say = (severity: Severity, message: string) => [
    inPlugin(placed, ['type'], [severity, 'order', message]),
  ];
  if (about.kind === 'ipam') {
    return say(
      'warning',
      `"${type}" assigns addresses: it belongs in "ipam" of the plugin that creates the interface`,
    );
  }
  if (about.kind === 'meta' && index === 0) {
    const main = plugins.find(other => other.plugin?.about?.kind === 'main');
    const where = main === undefined ? 'a plugin that creates the interface' : `"${main.plugin?.type}"`;
    return say(
      'error',
      `"${type}" needs the result of an earlier plugin, but there is none: put it after ${where}`,
    );
  }
  // After meta plugins only, it is those that are in the wrong position.
  if (about.kind === 'main' && plugins.slice(0, index).some(other => other.plugin?.about?.kind !== 'meta')) {
    const earlier = plugins[index - 1]?.plugin?.type ?? 'another plugin';
    return say('warning', `"${type}" creates its own interface: it should be first, not after "${earlier}"`);
  }
  if (about.once && plugins.slice(0, index).some(other => other.plugin?.type === type)) {
    return say(
      'warning',
      `a second "${type}" replaces what the first has set, and CHECK of the first fails: make one entry of both`,
    );
  }
  return [];
}

/**
 * Finds what a plugin's schema and rules refuse, and keys that are never read.
 * @param isForeign whether a third-party executable of that name exists, which may be less strict: what only ours refuses is a
 *   warning then, unless it has a schema of its own
 */
function judgePlugin(
  plugin: PlacedPlugin,
  earlier: readonly PlacedPlugin[],
  isForeign: (type: string) => boolean,
): Finding[] {
  const shape = judgeShape(plugin, isForeign);
  const options = shape.some(({ severity }) => severity === 'error')
    ? judgeRest(plugin, isForeign)
    : [
        ...judgeOptions(plugin, isForeign),
        ...(shape.length ? [] : adviseOn(plugin, earlier, isForeign)),
        ...judgeGateways(plugin),
      ];
  return [...shape, ...options, ...judgeKeys(plugin)];
}

/** The addresses that a plugin and its IPAM plugin lease; none if their configuration is invalid. */
function rangesOf({ named, conf }: PlacedPlugin): AddressRange[] {
  return named.flatMap(({ about, type }) => (about ? rangesIn(about, conf, type) : []));
}

function judgeShape(placed: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const { conf, named } = placed;
  const problems = (schema: Parameters<typeof findShapeProblems>[0], severity: Severity) =>
    findShapeProblems(schema, conf).map(problem => ({ ...problem, severity }));
  const own = named.flatMap(({ about, type }) =>
    about ? problems(about.config, isForeign(type) && !about.fromSchema ? 'warning' : 'error') : [],
  );
  return uniquePlaces([...problems(ListedPlugin, 'error'), ...own]).map(({ path, message, severity }) =>
    inPlugin(placed, path, [severity, 'shape', message]),
  );
}

function judgeOptions(placed: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const { conf, named } = placed;
  return named.flatMap(({ about, type, home }) => {
    if (about?.validate === undefined || isForeign(type)) return [];
    try {
      about.validate(decode(about.config, conf, type), conf);
      return [];
    } catch (error) {
      const { message } = error as Error;
      return inPlugin(placed, namedIn(message, conf, home), ['error', 'option', message]);
    }
  });
}

/**
 * The options apart from those whose values were already refused, so that one look finds both. The IPAM plugin's are left out: its
 * addresses depend on each other.
 */
function judgeRest(placed: PlacedPlugin, isForeign: (type: string) => boolean): Finding[] {
  const { conf, plugin } = placed;
  if (plugin?.about === undefined) return [];
  const { about } = plugin;
  const refused = findShapeProblems(about.config, conf).map(({ path: [key] }) => String(key).toLowerCase());
  if (refused.includes('ipam')) return [];
  const rest = Object.fromEntries(
    Object.entries(conf).filter(([key]) => !refused.includes(key.toLowerCase())),
  );
  if (findShapeProblems(about.config, rest).length) return [];
  const findings = judgeOptions({ ...placed, conf: rest, named: [plugin] }, isForeign);
  // What is missing now was refused, not forgotten.
  return findings.filter(({ message }) => !refused.some(key => message.toLowerCase().includes(`"${key}"`)));
}

/** What is valid and does nothing, or not what it seems to. */
function adviseOn(
  placed: PlacedPlugin,
  earlier: readonly PlacedPlugin[],
  isForeign: (type: string) => boolean,
): Finding[] {
  const { conf, named } = placed;
  const before = earlier.map(one => one.conf);
  return named.flatMap(({ about, type }) => {
    if (about?.advise === undefined || isForeign(type)) return [];
    const advice = about.advise(decode(about.config, conf, type), conf, before);
    return advice.map(({ path, message }) => inPlugin(placed, path, ['warning', 'option', message]));
  });
}

function judgeGateways(placed: PlacedPlugin): Finding[] {
  if (!placed.plugin?.about?.needsGatewayInSubnet) return [];
  return rangesOf(placed).flatMap(({ path, subnet, gateway }) => {
    // A host's only address has its gateway elsewhere.
    if (!gateway || isSmallest(subnet) || cidrContains(subnet, gateway)) return [];
    const message = `gateway ${renderIp(gateway)} is outside of the subnet ${renderCidr(subnet)}: containers look for it on their link, where it needs a route back to them`;
    return inPlugin(placed, [...path.slice(0, -1), 'gateway'], ['warning', 'option', message]);
  });
}

function judgeKeys(placed: PlacedPlugin): Finding[] {
  const { conf, plugin, ipam } = placed;
  const about = plugin?.about;
  // Arguments may be meant for other plugins, and the options of a third-party plugin are unknown.
  const open = ['args', 'runtimeConfig', ...(ipam?.about === undefined ? ['ipam'] : [])];
  const schemas = [about?.config ?? ListedPlugin, ...(ipam?.about ? [ipam.about.config] : [])];
  // Keys that only the runtime may set.
  const reserved = findOddKeys(conf, 'entry');
  const odd = new Set(reserved.map(one => one.path[0]));
  const unknown = findUnknownKeys(schemas, conf, { open }).filter(
    ({ path }) => (about !== undefined || path.length > 1) && !odd.has(path[0]),
  );
  return [
    ...unknown.map(({ path, message }) => atKeyIn(placed, path, ['warning', 'unknown-key', message])),
    ...reserved.map(({ path, problem }) => atKeyIn(placed, path, ['warning', 'reserved-key', problem])),
  ];
}

/** The general schema, the plugin's and its IPAM plugin's may all report the same mistake. */
function uniquePlaces<T extends Problem>(problems: readonly T[]): T[] {
  // There may be thousands.
  const byPlace = new Map<string, T>();
  for (const problem of problems) {
    const place = JSON.stringify(problem.path);
    byPlace.set(place, byPlace.get(place) ?? problem);
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
