// What do tools know about plugins, ours and those of others that have a schema beside their executable?
import { resolve } from 'node:path';
import * as z from 'zod/mini';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { decode, defined, isObject, type JsonObject, parseObject } from '../../cni/json.ts';
import {
  PLUGIN_KEYWORD,
  type PluginAbout,
  type PluginCatalog,
  schemaFileName,
} from '../../cni/plugin-about.ts';
import { fileExists, namesIn, readIfThere } from '../../files/read-file.ts';
import { whenIpam, whenType } from '../../plugin/schema/render.ts';
import { entrySchema } from './to-zod.ts';
import { schemaOf, WELL_KNOWN } from './well-known.ts';

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
    const text = readIfThere(file, `the schema of plugin "${type}" from`, ['ENOENT', 'ENOTDIR']);
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
  const { description, [PLUGIN_KEYWORD]: words } = decode(Words, schema, what);
  const { kind, capabilities } = words;
  const summary = description ?? 'does not say what it does';
  const config = configOf(schema, what);
  return {
    type,
    schema,
    about: { kind, summary, capabilities, config, fromSchema: true },
  };
}

/** @throws CniError 7 for what cannot be a schema, such as a pattern that is no regular expression */
function configOf(schema: JsonObject, what: string): PluginAbout['config'] {
  try {
    if (isDeeperThan(MAX_LEVELS, schema)) throw new Error(`it has more than ${MAX_LEVELS} levels`);
    return entrySchema(schema);
  } catch (cause) {
    const text = `Cannot use ${what}: ${(cause as Error).message}`;
    throw new CniError(ErrorCode.invalidConfig, text, { cause });
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
    if (!known.has(type)) known.set(type, tryRead(type, dirs, onUnusable));
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

function tryRead(
  type: string,
  dirs: readonly string[],
  onUnusable: (problem: CniError) => void,
): ForeignPlugin | undefined {
  try {
    return readSchemaFile(type, dirs);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    onUnusable(error);
    return undefined;
  }
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
