// Which JSON Schemas are published, so that an editor can help to write a conflist?
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { ConflistSchema } from '../../src/cni/conflist-schema.ts';
import { isObject, type JsonObject } from '../../src/cni/json.ts';
import type { PluginAbout } from '../../src/cni/plugin-about.ts';
import { SPEC_VERSIONS } from '../../src/cni/version.ts';
import { KNOWN_TYPES, loadAbout } from '../registry.ts';
import { type DocComments, readDocComments } from './doc-comments.ts';

const DIALECT = 'https://json-schema.org/draft/2020-12/schema';

/** Sources of keys that configurations share; the plugin's own take precedence. */
const SHARED_SOURCES = [
  ...['../../src/cni/plugin-config.ts', '../../src/cni/capabilities.ts'],
  '../../src/delegate/selection.ts',
];

/**
 * The schemas by name: `conflist`, and each plugin's type. Each is self-contained. They describe keys in their canonical spelling
 * and allow unknown keys, as the protocol does. Run by the build: descriptions come from the doc comments of the sources, which
 * the executable does not contain.
 */
export async function renderSchemas(): Promise<Record<string, JsonObject>> {
  const abouts = await Promise.all(KNOWN_TYPES.map(async type => ({ type, about: await loadAbout(type) })));
  const types = abouts.map(({ type }) => type);
  const ipam = abouts.filter(({ about }) => about.kind === 'ipam').map(({ type }) => type);
  const links = Object.fromEntries(abouts.map(({ type, about }) => [type, describePlugin(type, about)]));
  return {
    conflist: {
      $schema: DIALECT,
      title: 'CNI network configuration list',
      ...renderConflist(types, ipam),
      $defs: links,
    },
    ...Object.fromEntries(
      types.map(type => [
        type,
        {
          $schema: DIALECT,
          ...links[type],
          ...(ipam.includes(type)
            ? {}
            : {
                allOf: ipam.map(whenIpam),
                $defs: Object.fromEntries(ipam.map(name => [name, links[name]])),
              }),
        },
      ]),
    ),
  };
}

function renderConflist(types: readonly string[], ipam: readonly string[]): JsonObject {
  const schema = render(ConflistSchema, readSources('../../src/cni/conflist-schema.ts'));
  const { plugins } = schema.properties as { plugins: JsonObject };
  const chained = types.filter(type => !ipam.includes(type));
  const items = {
    ...(plugins.items as JsonObject),
    allOf: [...chained.map(whenType), ...ipam.map(whenIpam)],
  };
  return {
    ...schema,
    properties: { ...(schema.properties as JsonObject), plugins: { ...plugins, items } },
    // With "cniVersions", the runtime may ignore a newer "cniVersion".
    if: { not: { required: ['cniVersions'] } },
    // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
    then: { properties: { cniVersion: { enum: SPEC_VERSIONS } } },
  };
}

function describePlugin(type: string, { config, kind }: PluginAbout): JsonObject {
  const schema = render(config, readSources(`../${type}/config.ts`));
  const properties = schema.properties as Record<string, JsonObject>;
  if (kind === 'ipam') {
    const { ipam = {} } = properties;
    const inner = ipam.properties as Record<string, JsonObject>;
    ipam.properties = { ...inner, type: { ...inner.type, const: type } };
  } else properties.type = { ...properties.type, const: type };
  // A plugin accepts an empty type, but in a configuration that is a mistake.
  properties.type = { ...properties.type, minLength: 1 };
  const required = [...new Set(['type', ...((schema.required as string[] | undefined) ?? [])])];
  return { title: `Configuration of the ${kind} link ${type}`, ...schema, required };
}

function whenType(type: string): JsonObject {
  const condition = { properties: { type: { const: type } }, required: ['type'] };
  // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
  return { if: condition, then: { $ref: `#/$defs/${type}` } };
}

function whenIpam(type: string): JsonObject {
  const ipam = { properties: { type: { const: type } }, required: ['type'] };
  // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
  return { if: { properties: { ipam }, required: ['ipam'] }, then: { $ref: `#/$defs/${type}` } };
}

function render(schema: z.core.$ZodType, own: DocComments): JsonObject {
  const { $schema: _, ...rendered } = z.toJSONSchema(schema, { io: 'input' }) as JsonObject;
  const shared = readSources(...SHARED_SOURCES);
  return tidy(rendered, [], path => findWords(path, own, shared)) as JsonObject;
}

type Words = (path: readonly string[]) => string | undefined;

/** Adds descriptions, and removes what has no meaning: the limits of a safe integer, "any other key may be anything". */
function tidy(node: unknown, path: readonly string[], words: Words): unknown {
  if (!isObject(node)) return node;
  const { propertyNames: _, ...kept } = node;
  if (kept.maximum === Number.MAX_SAFE_INTEGER) delete kept.maximum;
  if (kept.minimum === Number.MIN_SAFE_INTEGER) delete kept.minimum;
  if (isObject(kept.additionalProperties) && !Object.keys(kept.additionalProperties).length) {
    delete kept.additionalProperties;
  }
  // A description of the value itself would be redundant in its alternatives.
  const inside = (part: unknown) => tidy(part, path, at => (at.length > path.length ? words(at) : undefined));
  const entries = Object.entries(kept).map(([keyword, value]) => {
    if (keyword === 'properties' && isObject(value)) {
      const properties = Object.entries(value).map(([key, part]) => [key, tidy(part, [...path, key], words)]);
      return [keyword, Object.fromEntries(properties)];
    }
    if (Array.isArray(value)) return [keyword, value.map(inside)];
    return [keyword, ['items', 'additionalProperties'].includes(keyword) ? inside(value) : value];
  });
  const description = words(path);
  return { ...(description === undefined ? {} : { description }), ...Object.fromEntries(entries) };
}

/** A key without a description at its own path gets that of the shared schema, or else of another key of the same name. */
function findWords(path: readonly string[], own: DocComments, shared: DocComments): string | undefined {
  const last = path.at(-1);
  if (last === undefined) return undefined;
  return (
    own.get(path.join('.')) ??
    shared.get(last) ??
    own.get(last) ??
    [...own].find(([key]) => key.endsWith(`.${last}`))?.[1]
  );
}

function readSources(...files: string[]): DocComments {
  const texts = files.map(file => readFileSync(join(import.meta.dirname, file), 'utf8'));
  return new Map(texts.reverse().flatMap(text => [...readDocComments(text)]));
}
