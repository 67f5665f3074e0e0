// How does the schema that another author wrote become one of ours, so that a list is examined in the same way?
import * as z from 'zod/mini';
import { isObject, type JsonObject } from '../../cni/json.ts';
import { ListedPlugin } from '../../cni/schemas.ts';

type Zod = z.ZodMiniType;

/** The document that references point into, and those that are being followed. */
interface Place {
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

function convert(node: unknown, place: Place): Zod {
  if (node === false) return z.custom(() => false, 'must be absent');
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

function shapeOf({ properties, required }: JsonObject, place: Place): Record<string, Zod> {
  const needed: readonly unknown[] = Array.isArray(required) ? required : [];
  return Object.fromEntries(
    Object.entries(isObject(properties) ? properties : {}).map(([key, part]) => {
      const schema = convert(part, place);
      return [key, needed.includes(key) ? schema : z.optional(schema)];
    }),
  );
}

/** A reference outside of the document, or to what is being read, says nothing. */
function follow(ref: string, { root, followed }: Place): Zod {
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
  if (typeof text !== 'string') return [];
  try {
    return [z.regex(new RegExp(text, 'u'), `must match ${text}`)];
  } catch {
    return [];
  }
}
