// Which JSON Schemas describe what commands and the daemon print for programs?
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import * as attachment from '../../src/cli/answers/attachment.ts';
import * as daemon from '../../src/cli/answers/daemon.ts';
import { API_VERSION } from '../../src/cli/answers/envelope.ts';
import * as executables from '../../src/cli/answers/executables.ts';
import { DOCUMENTS, KINDS } from '../../src/cli/answers/kinds.ts';
import * as node from '../../src/cli/answers/node.ts';
import { isObject, type JsonObject } from '../../src/cni/json.ts';
import * as model from '../../src/node/model.ts';
import { DIALECT, type DocComments, readDocComments } from '../../src/plugin/schema/render.ts';

const ANSWERS = join(import.meta.dirname, '../../src/cli/answers');

/** Schemas by the name of their constant, so that each becomes a definition with the comments of its own keys. */
const NAMED: Readonly<Record<string, unknown>> = {
  ...{ ...attachment, ...daemon, ...executables, ...node, ...model },
};

/** What a source says about a constant and its keys. */
interface Words {
  readonly summary: string | undefined;
  readonly keys: DocComments;
}

/**
 * The schemas by kind. Keys that they do not know are allowed: a later release may add some. Run by the build, as descriptions come
 * from the comments of the sources.
 */
export function renderAnswerSchemas(): Record<string, JsonObject> {
  const words = readWords();
  const names = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(NAMED)) {
    if (isSchema(schema)) names.add(schema, { id });
  }
  const sources = { names, words };
  const kinds = Object.entries(KINDS).map(([kind, schema]) => {
    return [kind, inEnvelope(kind, render(kind, schema, sources))];
  });
  const documents = Object.entries(DOCUMENTS).map(([name, schema]) => [name, render(name, schema, sources)]);
  return Object.fromEntries([...kinds, ...documents]);
}

interface Sources {
  readonly names: z.core.$ZodRegistry<{ id: string }>;
  readonly words: ReadonlyMap<string, Words>;
}

function render(title: string, schema: z.core.$ZodType, { names, words }: Sources): JsonObject {
  const rendered = z.toJSONSchema(schema, { metadata: names }) as JsonObject;
  const { $ref = '', $defs = {} } = rendered;
  const definitions = Object.entries($defs as Record<string, JsonObject>).map(
    ([name, { id: _, ...one }]) => [name, describe(one, words.get(name))] as const,
  );
  const isRoot = ([name]: readonly [string, unknown]) => $ref === `#/$defs/${name}`;
  const others = definitions.filter(one => !isRoot(one));
  return {
    $schema: DIALECT,
    title,
    ...definitions.find(isRoot)?.[1],
    ...(others.length ? { $defs: Object.fromEntries(others) } : {}),
  };
}

function inEnvelope(kind: string, { properties, required = [], $defs, ...rest }: JsonObject): JsonObject {
  return {
    ...rest,
    properties: { apiVersion: { const: API_VERSION }, kind: { const: kind }, ...(properties as JsonObject) },
    required: ['apiVersion', 'kind', ...(required as string[])],
    ...($defs === undefined ? {} : { $defs }),
  };
}

function describe(schema: JsonObject, words: Words | undefined): JsonObject {
  const { additionalProperties: _, properties = {}, ...rest } = withoutLimits(schema) as JsonObject;
  const described = Object.entries(properties as Record<string, JsonObject>).map(([key, value]) => {
    const description = words?.keys.get(key);
    return [key, description === undefined ? value : { description, ...value }];
  });
  return {
    ...(words?.summary === undefined ? {} : { description: words.summary }),
    ...rest,
    properties: Object.fromEntries(described),
  };
}

/** The limits of a safe integer say nothing, nor do the names of keys that may be any. */
function withoutLimits(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutLimits);
  if (!isObject(value)) return value;
  const kept = Object.entries(value).filter(
    ([key, limit]) =>
      key !== 'propertyNames' &&
      !(key === 'maximum' && limit === Number.MAX_SAFE_INTEGER) &&
      !(key === 'minimum' && limit === Number.MIN_SAFE_INTEGER),
  );
  return Object.fromEntries(kept.map(([key, one]) => [key, withoutLimits(one)]));
}

/** The comments of every constant of the sources, with those of the keys that it takes from another one. */
function readWords(): Map<string, Words> {
  const files = readdirSync(ANSWERS).map(name => join(ANSWERS, name));
  const sources = [...files, join(ANSWERS, '../../node/model.ts')].map(file => readFileSync(file, 'utf8'));
  const constants = sources.flatMap(text => [
    ...text.matchAll(
      /(?:^\/\*\* (?<summary>[^\n]*) \*\/\n)?^(?:export )?const (?<name>\w+) = (?:[^\n{]*\{\n(?<body>.*?)^\}\)?|(?<line>[^\n]*));$/gms,
    ),
  ]);
  const bodyIn = ({ body, line = '' }: Record<string, string>) => body ?? line;
  const bodies = new Map(constants.map(({ groups = {} }) => [groups.name, bodyIn(groups)]));
  return new Map(
    constants.map(({ groups = {} }) => {
      const { name = '', summary } = groups;
      const body = bodyIn(groups);
      const spread = [...body.matchAll(/\.\.\.(\w+)/g)].flatMap(([, other]) => bodies.get(other) ?? []);
      const keys = new Map([...spread, body].flatMap(text => [...readDocComments(text)]));
      return [name, { summary, keys }];
    }),
  );
}

function isSchema(value: unknown): value is z.core.$ZodType {
  return typeof value === 'object' && value !== null && '_zod' in value;
}
