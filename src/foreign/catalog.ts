// What do tools know about plugins, ours and those of others that have a schema beside their executable?
import { CniError } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import type { PluginCatalog } from '../cni/plugin-about.ts';
import { whenIpam, whenType } from '../schema/conditions.ts';
import { type ForeignPlugin, readSchemaFile, typesWithSchema } from './schema-file.ts';

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
