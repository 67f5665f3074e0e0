// What do tools know about plugins, ours and those of others that have a schema beside their executable?

import { resolve } from 'node:path';
import * as z from 'zod/mini';
import { attempt, CniError, invalidConfig } from '../../cni/errors.ts';
import { decode, defined, isObject, type JsonObject, parseObject } from '../../cni/json.ts';
import {
  PLUGIN_KEYWORD,
  type PluginAbout,
  type PluginCatalog,
  schemaFileName,
} from '../../cni/plugin-about.ts';
import { ListedPlugin } from '../../cni/schemas.ts';
import { ABSENT, fileExists, namesIn, readIfThere } from '../../files/read-file.ts';
import { whenIpam, whenType } from '../../plugin/schema/render.ts';
import { schemaOf, WELL_KNOWN } from './well-known.ts';

type Zod = z.ZodMiniType;

/** The document that references point into, and those that are being followed. */
interface SchemaPlace {
  readonly root: JsonObject;
  readonly followed: readonly string[];
}

/**
 * The schema of a plugin's entry, with the keys that every entry has. Types, members, enumerations, limits, patterns, alternatives
 * and references inside the document are examined; what else JSON Schema can demand is not, so a value may pass that the schema
 * refuses, and none is refused that it accepts. Keys may be added, as the protocol does.
 */
export function entrySchema(schema: JsonObject): z.core.$ZodType {
  return z.extend(ListedPlugin, shapeOf(schema, { root: schema, followed: [] }));
}

function convert(node: unknown, place: SchemaPlace): Zod {
  if (node === false) return z.unknown().check(z.refine(() => false, 'must be absent'));
  if (!isObject(node)) return z.unknown();
  if (typeof node.$ref === 'string') return follow(node.$ref, place);
  if (Array.isArray(node.enum)) return anyValueOf(node.enum);
  if ('const' in node) return anyValueOf([node.const]);
  const { type } = node;
  if (Array.isArray(type)) {
    return anyOf(
      type.map(one => convert({ ...node, type: one }, place)),
      type,
    );
  }
  if (type === undefined) {
    const parts = node.anyOf ?? node.oneOf;
    return Array.isArray(parts)
      ? anyOf(
          parts.map(part => convert(part, place)),
          typesOf(parts),
        )
      : z.unknown();
  }
  switch (type) {
    case 'string':
      return z.string().check(...lengths(node, 'minLength', 'maxLength'), ...pattern(node.pattern));
    case 'integer':
      return z.int().check(...limits(node));
    case 'number':
      return z.number().check(...limits(node));
    case 'boolean':
      return z.boolean();
    case 'null':
      return z.literal(null);
    case 'array':
      return z.array(convert(node.items, place)).check(...lengths(node, 'minItems', 'maxItems'));
    case 'object':
      return isObject(node.properties)
        ? z.looseObject(shapeOf(node, place))
        : z.record(z.string(), convert(node.additionalProperties, place));
    default:
      return z.unknown();
  }
}

function shapeOf({ properties, required }: JsonObject, place: SchemaPlace): Record<string, Zod> {
  const needed: readonly unknown[] = Array.isArray(required) ? required : [];
  return Object.fromEntries(
    Object.entries(isObject(properties) ? properties : {}).map(([key, part]) => {
      const schema = convert(part, place);
      return [key, needed.includes(key) ? schema : z.optional(schema)];
    }),
  );
}

/** A reference outside of the document, or to what is being read, says nothing. */
function follow(ref: string, { root, followed }: SchemaPlace): Zod {
  if (!ref.startsWith('#') || followed.includes(ref)) return z.unknown();
  const keys = ref.slice(1).split('/').slice(1);
  const target = keys.reduce<unknown>((at, key) => {
    const name = key.replaceAll('~1', '/').replaceAll('~0', '~');
    return isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined;
  }, root);
  return convert(target, { root, followed: [...followed, ref] });
}

function anyValueOf(values: readonly unknown[]): Zod {
  const isPlain = (value: unknown) =>
    value === null || ['string', 'number', 'boolean'].includes(typeof value);
  if (!values.length || !values.every(isPlain)) return z.unknown();
  return z.literal(values as (string | number | boolean | null)[]);
}

/** @param types of the alternatives, for the message; empty if they have none */
function anyOf(parts: readonly Zod[], types: readonly unknown[]): Zod {
  const [first, ...rest] = parts;
  if (first === undefined) return z.unknown();
  const wanted = types.length
    ? `must be of type ${types.join(' or ')}`
    : 'must be one of the alternatives of its schema';
  return rest.length ? z.union([first, ...rest], wanted) : first;
}

/** Of alternatives that differ by nothing else. */
function typesOf(parts: readonly unknown[]): string[] {
  const types = parts.map(part => (isObject(part) && Object.keys(part).length === 1 ? part.type : undefined));
  return types.every(type => typeof type === 'string') ? types : [];
}

function limits({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: JsonObject) {
  return [
    ...(typeof minimum === 'number' ? [z.minimum(minimum)] : []),
    ...(typeof maximum === 'number' ? [z.maximum(maximum)] : []),
    ...(typeof exclusiveMinimum === 'number'
      ? [z.refine<number>(value => value > exclusiveMinimum, `must be above ${exclusiveMinimum}`)]
      : []),
    ...(typeof exclusiveMaximum === 'number'
      ? [z.refine<number>(value => value < exclusiveMaximum, `must be below ${exclusiveMaximum}`)]
      : []),
  ];
}

function lengths(node: JsonObject, least: string, most: string) {
  const { [least]: min, [most]: max } = node;
  return [
    ...(typeof min === 'number' ? [z.minLength(min, `must have at least ${min}`)] : []),
    ...(typeof max === 'number' ? [z.maxLength(max, `must have at most ${max}`)] : []),
  ];
}

/** One that this engine cannot read is not examined. */
function pattern(text: unknown) {
  const known = typeof text === 'string' ? attempt(() => new RegExp(text, 'u')) : undefined;
  return known ? [z.regex(known, `must match ${text}`)] : [];
}

/** What is known about a plugin by its schema. */
interface ForeignPlugin {
  readonly type: string;
  /** As written. */
  readonly schema: JsonObject;
  readonly about: PluginAbout;
}

/** Far more than any configuration has. */
const MAX_LEVELS = 100;

const Words = z.looseObject({
  description: z.optional(z.string()),
  [PLUGIN_KEYWORD]: z.looseObject({
    kind: z.enum(['main', 'ipam', 'meta']),
    capabilities: z._default(z.array(z.string()), []),
  }),
});

/**
 * Reads the schema beside the executable that the directories have for a type; without an executable, the first schema. A plugin
 * that brings none may be well known.
 * @returns undefined if there is none
 * @throws CniError 5, 6 or 7 if it cannot be used
 */
function readSchemaFile(type: string, dirs: readonly string[]): ForeignPlugin | undefined {
  if (type.includes('/') || type.includes('\0')) return undefined;
  const home = dirs.find(dir => fileExists(resolve(dir, type)));
  for (const dir of home === undefined ? dirs : [home]) {
    const file = resolve(dir, schemaFileName(type));
    const text = readIfThere(file, `the schema of plugin "${type}" from`, ABSENT);
    if (text !== undefined)
      return parseSchema(type, parseObject(text, `schema "${file}"`), `schema "${file}"`);
  }
  const known = Object.hasOwn(WELL_KNOWN, type) ? WELL_KNOWN[type] : undefined;
  if (known === undefined) return undefined;
  const { about, ...foreign } = parseSchema(type, schemaOf(known), `the schema of plugin "${type}"`);
  return { ...foreign, about: { ...about, ...defined({ follows: known.follows }) } };
}

/** The types that have a schema in one of the directories, and those that are well known, sorted. */
function typesWithSchema(dirs: readonly string[]): string[] {
  const ending = schemaFileName('');
  const names = dirs.flatMap(dir => namesIn(resolve(dir))).filter(name => name.endsWith(ending));
  const types = names.map(name => name.slice(0, -ending.length)).filter(Boolean);
  return [...new Set([...types, ...Object.keys(WELL_KNOWN)])].sort();
}

/** @param what names it in errors */
function parseSchema(type: string, schema: JsonObject, what: string): ForeignPlugin {
  const { description: summary = 'does not say what it does', [PLUGIN_KEYWORD]: words } = decode(
    Words,
    schema,
    what,
  );
  const { kind, capabilities } = words;
  const config = configOf(schema, what);
  return { type, schema, about: { kind, summary, capabilities, config, fromSchema: true } };
}

/** @throws CniError 7 for what cannot be a schema, such as a pattern that is no regular expression */
function configOf(schema: JsonObject, what: string): PluginAbout['config'] {
  try {
    if (isDeeperThan(MAX_LEVELS, schema)) throw new Error(`it has more than ${MAX_LEVELS} levels`);
    return entrySchema(schema);
  } catch (cause) {
    const text = `Cannot use ${what}: ${(cause as Error).message}`;
    throw invalidConfig(text, { cause });
  }
}

/** Whatever reads a schema calls itself for each level, so one without an end would exhaust the stack. */
function isDeeperThan(levels: number, node: unknown): boolean {
  if (typeof node !== 'object' || node === null) return false;
  return levels === 0 || Object.values(node).some(part => isDeeperThan(levels - 1, part));
}

/**
 * The catalog with the plugins of these directories. What is ours by name stays so.
 * @param onUnusable told once of each schema that cannot be used
 */
export function withForeign(
  catalog: PluginCatalog,
  dirs: readonly string[],
  onUnusable: (problem: CniError) => void,
): PluginCatalog {
  const known = new Map<string, ForeignPlugin | undefined>();
  const read = (type: string): ForeignPlugin | undefined => {
    if (known.has(type)) return known.get(type);
    // Whatever comes of it, it is read and told once.
    known.set(type, undefined);
    try {
      known.set(type, readSchemaFile(type, dirs));
    } catch (error) {
      if (!(error instanceof CniError)) throw error;
      onUnusable(error);
    }
    return known.get(type);
  };
  const others = () =>
    typesWithSchema(dirs).flatMap(type => (catalog.types.includes(type) ? [] : (read(type) ?? [])));
  return {
    ...catalog,
    find(type) {
      const own = catalog.find(type);
      if (own !== undefined) return own;
      const about = read(type)?.about;
      return about && Promise.resolve(about);
    },
    async schemas() {
      const ours = await catalog.schemas();
      const foreign = others();
      const { conflist } = ours;
      return {
        ...ours,
        ...(conflist ? { conflist: foreign.reduce(addPlugin, conflist) } : {}),
        ...Object.fromEntries(foreign.map(({ type, schema }) => [type, schema])),
      };
    },
  };
}

/** The schema of lists, which holds the plugin's as a definition. */
function addPlugin(conflist: JsonObject, { type, schema, about }: ForeignPlugin): JsonObject {
  const { properties, $defs } = conflist as Record<string, JsonObject>;
  const plugins = properties?.plugins as JsonObject;
  const items = plugins.items as JsonObject;
  const condition = about.kind === 'ipam' ? whenIpam(type) : whenType(type);
  const { $schema: _, $id: __, ...definition } = moveRefs(schema, `#/$defs/${type}`) as JsonObject;
  return {
    ...conflist,
    properties: {
      ...properties,
      plugins: { ...plugins, items: { ...items, allOf: [...(items.allOf as unknown[]), condition] } },
    },
    $defs: { ...$defs, [type]: definition },
  };
}

/** References inside of a document that becomes part of another one. */
function moveRefs(node: unknown, home: string): unknown {
  if (Array.isArray(node)) return node.map(part => moveRefs(part, home));
  if (!isObject(node)) return node;
  return Object.fromEntries(
    Object.entries(node).map(([key, value]) =>
      key === '$ref' && typeof value === 'string' && value.startsWith('#')
        ? [key, `${home}${value.slice(1)}`]
        : [key, moveRefs(value, home)],
    ),
  );
}
