// How does the schema of a plugin's options become a JSON Schema for tools, editors and people?

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { isObject, type JsonObject } from '../../cni/json.ts';
import { PLUGIN_KEYWORD, type PluginKind } from '../../cni/plugin-about.ts';

/** For an entry whose `type` it is. The schema is below `$defs`. */
export function whenType(type: string): JsonObject {
  const isOf = { properties: { type: { const: type } }, required: ['type'] };
  // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
  return { if: isOf, then: { $ref: `#/$defs/${type}` } };
}

/** For an entry whose plugin calls it for addresses. */
export function whenIpam(type: string): JsonObject {
  const { if: isOf, ...rest } = whenType(type);
  return { if: { properties: { ipam: isOf }, required: ['ipam'] }, ...rest };
}

/** The text of a comment by path of the key (`ipam.subnet`), in order. */
export type DocComments = ReadonlyMap<string, string>;

const TOKEN = /\/\*\*(?<doc>[\s\S]*?)\*\/|\/\/.*|'(?:\\.|[^'\\\n])*'|(?<key>[\w$]+)\s*:|[^\s]/g;

/**
 * Reads the comments of object keys from source text. A key's path consists of the enclosing keys; a constant of its own starts a
 * new path.
 */
export function readDocComments(source: string): DocComments {
  const comments = new Map<string, string>();
  const holders: string[] = [];
  let words: string | undefined;
  let [key, keyDepth, depth] = ['', 0, 0];
  for (const { 0: token, groups = {} } of source.matchAll(TOKEN)) {
    if (groups.doc !== undefined) {
      words = oneLine(groups.doc);
      continue;
    }
    if (groups.key !== undefined) {
      [key, keyDepth] = [groups.key, depth];
      const path = [...holders, key].filter(Boolean).join('.');
      if (words !== undefined && !comments.has(path)) comments.set(path, words);
    } else if (token === '(' || token === '[') depth++;
    else if (token === ')' || token === ']') depth--;
    else if (token === '{') {
      holders.push(key);
      key = '';
    } else if (token === '}') {
      holders.pop();
      key = '';
    } else if ((token === ',' || token === ';') && depth === keyDepth) key = '';
    words = undefined;
  }
  return comments;
}

function oneLine(comment: string): string {
  return comment
    .replace(/\n\s*\* ?/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

/** The version of JSON Schema. */
export const DIALECT = 'https://json-schema.org/draft/2020-12/schema';

/** What tools need to know about a plugin. */
interface Described {
  /** Its name, and that of its executable. */
  readonly type: string;
  readonly kind: PluginKind;
  /** What it does, after "it": `limits the rate of traffic to and from the container`. */
  readonly summary: string;
  /** Keys of `runtimeConfig` that it reads. */
  readonly capabilities: readonly string[];
  readonly config: z.core.$ZodType;
}

/** Source of keys that all configurations share; the plugin's own take precedence. */
const SHARED_SOURCES = [join(import.meta.dirname, '../../cni/schemas.ts')];

/**
 * The schema of one entry of a list, without `$schema`. Keys are in their canonical spelling, and unknown keys are allowed, as the
 * protocol does.
 * @param sources files whose doc comments describe the options
 * @param shared files with those of options that several plugins have
 */
export function describePlugin(
  { type, kind, summary, capabilities, config }: Described,
  sources: readonly string[],
  shared: readonly string[] = [],
): JsonObject {
  const schema = renderSchema(config, sources, shared);
  const properties = schema.properties as Record<string, JsonObject>;
  if (kind === 'ipam') {
    const { ipam = {} } = properties;
    const inner = ipam.properties as Record<string, JsonObject>;
    ipam.properties = { ...inner, type: { ...inner.type, const: type } };
  } else properties.type = { ...properties.type, const: type };
  // A plugin accepts an empty type, but in a configuration that is a mistake.
  properties.type = { ...properties.type, minLength: 1 };
  const required = [...new Set(['type', ...((schema.required as string[] | undefined) ?? [])])];
  return {
    title: `Configuration of the ${kind} plugin ${type}`,
    description: summary,
    [PLUGIN_KEYWORD]: { kind, capabilities },
    ...schema,
    required,
  };
}

/** The JSON Schema of values as they are written, with the doc comments as descriptions. */
export function renderSchema(
  schema: z.core.$ZodType,
  sources: readonly string[],
  shared: readonly string[] = [],
): JsonObject {
  const { $schema: _, ...rendered } = z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
  }) as JsonObject;
  const own = readComments(sources);
  const others = readComments([...SHARED_SOURCES, ...shared]);
  return tidy(rendered, [], path => findWords(path, own, others)) as JsonObject;
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

/** The comments of several sources; those of the first win. */
function readComments(files: readonly string[]): DocComments {
  const texts = files.map(file => readFileSync(file, 'utf8'));
  return new Map(texts.reverse().flatMap(text => [...readDocComments(text)]));
}
