// What does each line of a list mean, and what has an attachment from each of its plugins?

import type { Conflist } from '../../chain/config/conflist.ts';
import type { PluginEntry } from '../../cni/conflist.ts';
import { isObject, type JsonObject, memberOf, parseObject } from '../../cni/json.ts';
import type { AddressRange, PluginAbout, PluginCatalog } from '../../cni/plugin-about.ts';
import { renderIp } from '../../net/ip.ts';
import type { AnswerOf } from '../answers/kinds.ts';

/** A list, explained. */
export type ListExplanation = Omit<AnswerOf<'NetworkExplanation'>, 'runtimes'>;

/** One plugin of a list, or the IPAM plugin that it calls. */
export type PluginExplanation = ListExplanation['plugins'][number];

/** An option and its value. */
export type OptionExplanation = ListExplanation['options'][number];

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
