// What do an error code and each line of a list mean, and how is that shown to a person?

import type { Conflist } from '../chain/config/conflist.ts';
import type { PluginEntry } from '../cni/conflist.ts';
import { ADDRESS_TAKEN, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf, parseObject } from '../cni/json.ts';
import type { AddressRange, PluginAbout, PluginCatalog } from '../cni/plugin-about.ts';
import { renderIp } from '../net/ip.ts';
import type { AnswerOf } from './answers/kinds.ts';
import { wrap } from './terminal/lines.ts';

/** An error code, explained. */
type CodeExplanation = AnswerOf<'CodeExplanation'>;

/** From this code on, plugins define the meaning themselves (SPEC "Error"). */
const FIRST_FREE = 100;

type Texts = Omit<CodeExplanation, 'code'>;

const KNOWN: Readonly<Record<number, Texts>> = {
  [ErrorCode.unknown]: {
    meaning: 'The runner failed before or between its plugins.',
    causes: ['an executable is missing or cannot be started', 'a plugin printed something that is no JSON'],
    advice: ['read the message: it names the plugin', 'catena validate <conflist>'],
  },
  [ErrorCode.incompatibleVersion]: {
    meaning: 'The plugin, or the verb, does not support the "cniVersion" of the list.',
    causes: ['a list for a newer release of the plugin', 'CHECK of a list below 0.4.0'],
    advice: [
      'catena networks --versions <network> shows what each plugin supports',
      'choose a version that all of them have',
    ],
  },
  [ErrorCode.unsupportedField]: {
    meaning: 'The configuration has a key or value that the plugin does not support.',
    causes: ['an option of another release', 'an option that the kernel of this node lacks'],
    advice: [
      'catena validate <conflist> shows the place',
      'catena validate --schema <plugin> lists the options',
    ],
  },
  [ErrorCode.unknownContainer]: {
    meaning: 'The plugin does not know the container. A runtime need not call DEL.',
    causes: ['CHECK without an ADD, or after DEL', 'the records of the ADD are in another directory'],
    advice: [
      'catena ls shows what is recorded',
      'compare --cni-cache-dir and --state-dir with those of the ADD',
    ],
  },
  [ErrorCode.invalidEnvironment]: {
    meaning: 'A variable of the call (CNI_*) is missing or invalid, or the interface exists already.',
    causes: ['a second ADD without DEL', 'a container id or interface name with forbidden characters'],
    advice: ['run DEL, then ADD again', 'read the message: it names the variable'],
  },
  [ErrorCode.ioFailure]: {
    meaning: 'A file, socket or stream could not be read or written.',
    causes: ['a full disk', 'a directory that this user may not write', 'standard input that ended early'],
    advice: ['read the message: it names the file', 'catena doctor examines directories and space'],
  },
  [ErrorCode.decodingFailure]: {
    meaning: 'What was read is not the JSON that was expected.',
    causes: ['a syntax error in a list', 'a plugin that prints more than its result'],
    advice: [
      'catena validate <conflist> shows line and column',
      'catena conformance <plugin> tests what it prints',
    ],
  },
  [ErrorCode.invalidConfig]: {
    meaning: 'The configuration is valid JSON and cannot be used as it is.',
    causes: ['a missing or contradictory option', 'an address or device that does not fit this node'],
    advice: ['catena validate <conflist>', 'catena try <conflist> runs it in temporary namespaces'],
  },
  [ErrorCode.invalidNetns]: {
    meaning:
      "The path of the namespace is not a namespace, is the plugin's own, or has become another container's.",
    causes: ['the container has ended', 'a path of a process id that is used again'],
    advice: ['run DEL for this container', 'catena ls shows which namespaces exist'],
  },
  [ErrorCode.tryAgainLater]: {
    meaning: 'The call cannot be served at this moment; the same call may succeed later.',
    causes: ['no free address', 'another process works on the attachment', "the daemon's queue is full"],
    advice: ['catena ipam ls <network> shows who holds addresses', 'call again, as runtimes do'],
  },
  [ErrorCode.unavailable]: {
    meaning: 'STATUS: the plugin cannot serve ADD. Existing containers are not affected.',
    causes: ['a master that is missing or down', 'a full pool', 'a kernel without the needed kind of device'],
    advice: ['catena status <network> names the plugin', 'catena doctor'],
  },
  [ErrorCode.unavailableLimited]: {
    meaning: 'STATUS: the plugin cannot serve ADD, and existing containers may have limited connectivity.',
    causes: ['no daemon renews leases of dhcp', 'forwarding is off'],
    advice: ['catena status <network> names the plugin', 'catena doctor'],
  },
  [ADDRESS_TAKEN]: {
    meaning:
      'Of bridge, ptp, firewall and portmap: the address belongs to another attachment that still exists.',
    causes: [
      'two networks with overlapping ranges',
      'leases that were deleted while containers use the addresses',
    ],
    advice: ['catena who <address> shows who has it', 'catena validate <conf dir> finds overlapping ranges'],
  },
  [ErrorCode.internal]: {
    meaning:
      'A failure that the plugin did not classify, often an answer of the kernel; or what CHECK found.',
    causes: ['CHECK: a part of the attachment was removed or changed', 'the kernel refused a request'],
    advice: ['catena repair <network> restores what it can', 'CATENA_NETLINK_TRACE=1 prints the requests'],
  },
};

/** Codes with an explanation of their own, ascending. */
export const EXPLAINED_CODES: readonly number[] = Object.keys(KNOWN).map(Number);

/** Explains a code; undefined for one that the specification reserves and does not define. */
export function explainCode(code: number): CodeExplanation | undefined {
  const known = KNOWN[code];
  if (known) return { code, ...known };
  if (code < FIRST_FREE) return undefined;
  return {
    code,
    meaning: `Defined by the plugin that answered it: codes from ${FIRST_FREE} on are free for plugins.`,
    causes: ['ours, 100: what was asked for is taken, such as a port of the host, or was refused by a rule'],
    advice: ["read the message, and the plugin's README"],
  };
}

/** A list, explained. */
type ListExplanation = Omit<AnswerOf<'NetworkExplanation'>, 'runtimes'>;

/** One plugin of a list, or the IPAM plugin that it calls. */
type PluginExplanation = ListExplanation['plugins'][number];

/** An option and its value. */
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
    const ipamType = isObject(ipam) ? memberOf(ipam, 'type') : undefined;
    const main = await explainPlugin(entry, conf, request, { catalog, schema: schemas[type] });
    if (!isObject(ipam) || typeof ipamType !== 'string' || ipamType === '') return main;
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
    return tryOr([], () => [...(abouts[i]?.reachOf?.(request) ?? [])]);
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
    const isLeft = isObject(property) && 'default' in property && !names.includes(name.toLowerCase());
    return isLeft && !PROTOCOL.includes(name)
      ? [{ name, value: property.default, ...meaningOf(property) }]
      : [];
  });
  const offered = Object.keys(capabilities).filter(name => capabilities[name]);
  const idle = about && tryOr(undefined, () => about.idleWithout?.(request as never));
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

function effectsOf(about: PluginAbout, conf: JsonObject, request: JsonObject): string[] {
  const { policies = [], rates, ports = [] } = tryOr({}, () => about.effectsOf?.(request) ?? {});
  const devices = tryOr([], () => about.devicesOf?.(conf) ?? []);
  const needs = tryOr([], () => about.needsOf?.(conf) ?? []);
  const ranges = tryOr([], () => about.rangesOf?.(request as never) ?? []);
  const { ingressBits, egressBits } = rates ?? {};
  return [
    ...needs.map(({ name }) => `needs device "${name}" on the host`),
    ...devices.flatMap(({ name }) =>
      name ? [`has device "${name}" on the host, made if it is missing`] : [],
    ),
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

/** A list that would be refused is explained as far as it can be. */
function tryOr<T>(fallback: T, work: () => T): T {
  try {
    return work();
  } catch {
    return fallback;
  }
}

/** Whether a runtime uses the file of the list, and why. */
export type RuntimeVerdict = AnswerOf<'NetworkExplanation'>['runtimes'][number];

/** @param width of the terminal, in columns */
export function renderCode({ code, meaning, causes, advice }: CodeExplanation, width: number): string {
  return [
    ...wrap(`code ${code}: ${meaning}`, width),
    'usual causes',
    ...causes.flatMap(cause => wrap(`- ${cause}`, width, '  ')),
    'what to do',
    ...advice.flatMap(one => wrap(`- ${one}`, width, '  ')),
    '',
  ].join('\n');
}

/** @param width of the terminal, in columns */
export function renderList(
  { network, cniVersion, options, plugins, reach }: ListExplanation,
  verdicts: readonly RuntimeVerdict[],
  width: number,
): string {
  const count = plugins.length === 1 ? '1 plugin' : `${plugins.length} plugins`;
  return [
    ...wrap(
      `network ${network}, CNI ${cniVersion}: ADD calls ${count} in this order, DEL in the opposite one`,
      width,
    ),
    ...options.flatMap(({ meaning = 'no key of the specification', ...option }) =>
      wrap(`${assignment(option)}: ${meaning}`, width, '   '),
    ),
    ...plugins.flatMap((plugin, i) => ['', ...pluginLines(plugin, `${i + 1}  `, width)]),
    ...(reach.length ? ['', 'who reaches whom'] : []),
    ...reach.flatMap(sentence => wrap(sentence, width, '   ')),
    ...(verdicts.length ? ['', 'runtimes'] : []),
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
