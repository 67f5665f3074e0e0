// What does `catena validate --explain` print, and what does each line of a list mean?
import type { Conflist, PluginEntry } from '../../chain/config/conflist.ts';
import { NetworkNotFound } from '../../chain/config/load.ts';
import { attempt } from '../../cni/errors.ts';
import { isObject, type JsonObject, memberOf, parseObject } from '../../cni/json.ts';
import {
  type AddressRange,
  ipamTypeIn,
  type PluginAbout,
  type PluginCatalog,
} from '../../cni/plugin-about.ts';
import { count } from '../../lab/words.ts';
import { renderIp } from '../../net/ip.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { catalogOf } from '../commands/validate.ts';
import { findList, type NamedList } from '../named-list.ts';
import { printAnswer } from '../output/print.ts';
import { readConfigured } from '../runtimes/configured.ts';
import { choicesOf, readCandidates } from '../runtimes/rules.ts';
import { widthOf, wrap } from '../terminal/lines.ts';

/** Where the output is no terminal. */
const WIDTH = 80;

/** Explains every line of a list. */
export async function run(call: CommandCall): Promise<number> {
  const [what, ...more] = call.positionals;
  if (what === undefined || more.length > 0) throw new UsageError('Cannot explain: name one list or network');
  const width = widthOf(call) ?? WIDTH;
  const { list, file, dir } = find(call, what);
  const explanation = await explainList(list, catalogOf(call));
  const runtimes = await verdictsOn(list, dir, file);
  await printAnswer(call, 'NetworkExplanation', { ...explanation, runtimes }, () =>
    renderList(explanation, dir, runtimes, width),
  );
  return 0;
}

/** The name of a plugin is no list, and a reader may not know the difference. */
function find(call: CommandCall, what: string): NamedList {
  try {
    return findList(call, what);
  } catch (error) {
    if (!(error instanceof NetworkNotFound) || !call.plugins.types.includes(what)) throw error;
    throw new UsageError(
      `Cannot explain "${what}": it is a plugin and no network; catena validate --schema ${what} shows its options`,
    );
  }
}

/** Which runtimes would use the list if its directory is the one they read. */
async function verdictsOn(list: Conflist, dir: string, file: string | undefined): Promise<RuntimeVerdict[]> {
  const candidates = await readCandidates(dir);
  const name = file ?? candidates.find(one => one.list?.name === list.name)?.name;
  return choicesOf(candidates, readConfigured('/etc')).flatMap(({ runtime, verdicts }) =>
    verdicts.filter(verdict => verdict.file === name).map(({ used, why }) => ({ runtime, used, why })),
  );
}

type ListExplanation = Omit<AnswerOf<'NetworkExplanation'>, 'runtimes'>;

/** One plugin of a list, or the IPAM plugin that it calls. */
type PluginExplanation = ListExplanation['plugins'][number];

type OptionExplanation = ListExplanation['options'][number];

/** Keys that belong to the protocol, not to a plugin. */
const PROTOCOL: readonly string[] = ['type', 'capabilities', 'ipam', 'cniVersion', 'name', 'prevResult'];

/** Explains a list by what plugins say about themselves; nothing is run. */
export async function explainList(list: Conflist, catalog: PluginCatalog): Promise<ListExplanation> {
  const schemas = await catalog.schemas();
  const plugins = list.plugins.map(async entry => {
    const { conf, type } = entry;
    const request = { ...conf, cniVersion: list.version, name: list.name };
    const ipam = memberOf(conf, 'ipam');
    const ipamType = ipamTypeIn(conf);
    const main = await explainPlugin(entry, conf, request, { catalog, schema: schemas[type] });
    if (!isObject(ipam) || ipamType === undefined) return main;
    const called = { ...entry, type: ipamType };
    const schema = memberOf(propertiesOf(schemas[ipamType]), 'ipam');
    return { ...main, ipam: await explainPlugin(called, ipam, request, { catalog, schema }) };
  });
  return {
    network: list.name,
    cniVersion: list.version,
    options: optionsOf(list, propertiesOf(schemas.conflist)),
    plugins: await Promise.all(plugins),
    reach: await reachIn(list, catalog),
  };
}

/** Without its name, version and plugins, which are told elsewhere. */
function optionsOf({ source }: Conflist, known: JsonObject): OptionExplanation[] {
  return Object.entries(parseObject(source, 'list'))
    .filter(([name]) => !['name', 'cniVersion', 'plugins', '$schema'].includes(name))
    .map(([name, value]) => ({ name, value, ...meaningOf(known[name]) }));
}

async function reachIn({ plugins, name, version }: Conflist, catalog: PluginCatalog): Promise<string[]> {
  const abouts = await Promise.all(plugins.map(({ type }) => catalog.find(type)));
  return plugins.flatMap(({ conf }, i) => {
    const request = { ...conf, cniVersion: version, name };
    return attempt(() => abouts[i]?.reachOf?.(request)) ?? [];
  });
}

async function explainPlugin(
  { type, capabilities }: PluginEntry,
  conf: JsonObject,
  request: JsonObject,
  { catalog, schema }: { readonly catalog: PluginCatalog; readonly schema: unknown },
): Promise<PluginExplanation> {
  const about = await catalog.find(type);
  const known = propertiesOf(schema);
  const set = Object.entries(conf).filter(([name]) => !PROTOCOL.includes(name));
  const names = set.map(([name]) => name.toLowerCase());
  const options = set.map(([name, value]) => ({ name, value, ...meaningOf(memberOf(known, name)) }));
  const defaults = Object.entries(known).flatMap(([name, property]) => {
    if (PROTOCOL.includes(name) || names.includes(name.toLowerCase())) return [];
    if (!isObject(property) || !('default' in property)) return [];
    return { name, value: property.default, ...meaningOf(property) };
  });
  const offered = Object.keys(capabilities).filter(name => capabilities[name]);
  const idle = attempt(() => about?.idleWithout?.(request as never));
  return {
    type,
    ...(about ? { kind: about.kind, summary: about.summary } : {}),
    options,
    defaults,
    capabilities: about?.kind === 'ipam' ? [] : offered,
    ...(idle && offered.includes(idle) ? { idleWithout: idle } : {}),
    effects: about ? effectsOf(about, conf, request) : [],
  };
}

/** A list that would be refused is explained as far as it can be. */
function effectsOf(about: PluginAbout, conf: JsonObject, request: JsonObject): string[] {
  const { policies = [], rates, ports = [] } = attempt(() => about.effectsOf?.(request)) ?? {};
  const devices = attempt(() => about.devicesOf?.(conf)) ?? [];
  const needs = attempt(() => about.needsOf?.(conf)) ?? [];
  const ranges = attempt(() => about.rangesOf?.(request as never)) ?? [];
  const { ingressBits, egressBits } = rates ?? {};
  return [
    ...needs.map(({ name }) => `needs device "${name}" on the host`),
    ...devices.flatMap(({ name }) => (name ? `has device "${name}" on the host, made if it is missing` : [])),
    ...ranges.map(renderRange),
    ...policies.map(policy => `the container ${policy}`),
    ...(ingressBits ? [`the container receives at most ${ingressBits} bit/s`] : []),
    ...(egressBits ? [`the container sends at most ${egressBits} bit/s`] : []),
    ...ports.map(({ hostPort, containerPort, protocol }) => {
      return `port ${hostPort}/${protocol} of the host leads to port ${containerPort}`;
    }),
  ];
}

/** A gateway that is the first address is left out, not excepted. */
function renderRange({ start, end, gateway }: AddressRange): string {
  const isFirst = gateway?.value === start.value;
  const first = isFirst ? { ...start, value: start.value + 1n } : start;
  const excepted = gateway
    ? `${isFirst ? '; the' : ', without the'} gateway ${isFirst ? 'is ' : ''}${renderIp(gateway)}`
    : ', and has no gateway';
  return `assigns ${renderIp(first)} to ${renderIp(end)}${excepted}`;
}

function meaningOf(property: unknown): Pick<OptionExplanation, 'meaning'> {
  const meaning = isObject(property) ? property.description : undefined;
  return typeof meaning === 'string' ? { meaning } : {};
}

function propertiesOf(schema: unknown): JsonObject {
  const properties = isObject(schema) ? schema.properties : undefined;
  return isObject(properties) ? properties : {};
}

/** Whether a runtime uses the file of the list, and why. */
type RuntimeVerdict = AnswerOf<'NetworkExplanation'>['runtimes'][number];

/**
 * @param dir which the verdicts are about: that of the list
 * @param width of the terminal, in columns
 */
export function renderList(
  { network, cniVersion, options, plugins, reach }: ListExplanation,
  dir: string,
  verdicts: readonly RuntimeVerdict[],
  width: number,
): string {
  const order = `ADD calls ${count(plugins.length, 'plugin')} in this order, DEL in the opposite one`;
  return [
    ...wrap(`network ${network}, CNI ${cniVersion}: ${order}`, width),
    ...options.flatMap(({ meaning = 'no key of the specification', ...option }) =>
      wrap(`${assignment(option)}: ${meaning}`, width, '   '),
    ),
    ...plugins.flatMap((plugin, i) => ['', ...pluginLines(plugin, `${i + 1}  `, width)]),
    ...(reach.length ? ['', 'who reaches whom'] : []),
    ...reach.flatMap(sentence => wrap(sentence, width, '   ')),
    ...(verdicts.length ? ['', `runtimes that read "${dir}"`] : []),
    ...verdicts.flatMap(({ runtime, used, why }) =>
      wrap(`${runtime}: ${used ? 'used' : 'not used'}: ${why}`, width, '   '),
    ),
    '',
  ].join('\n');
}

/** @param head what stands before the type */
function pluginLines(plugin: PluginExplanation, head: string, width: number): string[] {
  const { type, kind, summary, options, defaults, capabilities, idleWithout, effects, ipam } = plugin;
  const title = kind
    ? `${type} (${kind}) ${summary}`
    : `${type}: no schema beside its executable says what its options mean`;
  const indent = head.replace(/\S.*/, '   ');
  const passed = capabilities.join(', ');
  return [
    ...wrap(title, width, head, indent),
    ...options.flatMap(option => optionLines(option, kind !== undefined, width, indent)),
    ...(passed ? wrap(`a runtime may pass: ${passed}`, width, indent) : []),
    ...(idleWithout ? wrap(`does nothing for a container without ${idleWithout}`, width, indent) : []),
    ...effects.flatMap(effect => wrap(`=> ${effect}`, width, indent)),
    ...(defaults.length
      ? wrap(`left at the default: ${defaults.map(assignment).join(', ')}`, width, indent)
      : []),
    ...(ipam ? pluginLines(ipam, `${indent}calls `, width) : []),
  ];
}

/** @param isKnown whether the plugin says which options it has */
function optionLines(option: OptionExplanation, isKnown: boolean, width: number, indent: string): string[] {
  const unknown = isKnown ? ': unknown to the plugin, which ignores it' : '';
  // Descriptions of schemas are Markdown.
  const meaning = option.meaning === undefined ? unknown : `: ${option.meaning.replaceAll('`', '')}`;
  return wrap(`${assignment(option)}${meaning}`, width, indent);
}

/** With spaces at which a long value can be wrapped. */
function assignment({ name, value }: OptionExplanation): string {
  const spaced = JSON.stringify(value, null, 1).replaceAll(/(?<=[[{])\n *|\n *(?=[\]}])/g, '');
  return `${name} = ${spaced.replaceAll(/\n */g, ' ')}`;
}
