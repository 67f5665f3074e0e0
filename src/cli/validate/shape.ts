// Which values does a schema refuse, and which keys does it not know?
import * as z from 'zod/mini';
import { describeIssue, didYouMean, foldKeys, isObject } from '../../cni/json.ts';
import type { Path } from './document.ts';

/** A problem at a path of a value. */
export interface Problem {
  readonly path: Path;
  readonly message: string;
}

/** How keys are matched. */
interface Reading {
  /** Top-level keys are case-sensitive: true for a conflist, false for a plugin. */
  readonly exact?: boolean;
  /** Top-level keys whose values may be anything. */
  readonly open?: readonly string[];
}

/** Everything that the schema refuses; for a missing key, a similar one is looked for. */
export function findShapeProblems(
  schema: z.core.$ZodType,
  value: unknown,
  { exact = false }: Reading = {},
): Problem[] {
  const parsed = z.safeParse(schema, exact ? value : foldKeys(schema, value), { reportInput: true });
  if (parsed.success) return [];
  return parsed.error.issues.map(issue => {
    const path = issue.path as Path;
    return {
      path,
      message: `${describeIssue(issue)}${issue.input === undefined ? nearKey(value, path) : ''}`,
    };
  });
}

/**
 * Keys that none of the schemas knows; several read the same configuration if a plugin calls an IPAM plugin. Keys are accepted
 * wherever a schema accepts any key. Comments (`_note`, `//`, `$schema`) and keys with a namespace (`example.com/key`) are not
 * mistakes.
 */
export function findUnknownKeys(
  schemas: readonly z.core.$ZodType[],
  value: unknown,
  { exact = false, open = [] }: Reading = {},
  path: Path = [],
): Problem[] {
  const defs = schemas.map(unwrap);
  if (Array.isArray(value)) {
    const elements = defs.flatMap(({ element }) => (element ? [element] : []));
    return value.flatMap((item, i) =>
      elements.length ? findUnknownKeys(elements, item, {}, [...path, i]) : [],
    );
  }
  if (!isObject(value) || defs.some(({ shape }) => shape === undefined)) return [];
  const known = [...new Set(defs.flatMap(({ shape = {} }) => Object.keys(shape)))];
  if (!known.length) return [];
  return Object.entries(value).flatMap(([key, member]) => {
    const name = known.find(one => one === key) ?? (exact ? undefined : known.find(one => isSame(one, key)));
    if (name === undefined) {
      if (/^[_$#]|\//.test(key)) return [];
      return [{ path: [...path, key], message: `key "${key}" is not known${didYouMean(key, known)}` }];
    }
    if (open.includes(name)) return [];
    return findUnknownKeys(
      defs.flatMap(({ shape }) => shape?.[name] ?? []),
      member,
      {},
      [...path, key],
    );
  });
}

interface SchemaDef {
  readonly innerType?: z.core.$ZodType;
  readonly element?: z.core.$ZodType;
  readonly shape?: Readonly<Record<string, z.core.$ZodType>>;
}

function unwrap(schema: z.core.$ZodType): SchemaDef {
  const { def } = (schema as unknown as { _zod: { def: SchemaDef } })._zod;
  return def.innerType === undefined ? def : unwrap(def.innerType);
}

function nearKey(value: unknown, path: Path): string {
  const parent = path
    .slice(0, -1)
    .reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], value);
  const missing = path.at(-1);
  if (!isObject(parent) || typeof missing !== 'string') return '';
  const near = Object.keys(parent).find(key => didYouMean(key, [missing]) !== '');
  return near === undefined ? '' : `; is "${near}" a typo?`;
}

function isSame(a: string, b: string): boolean {
  return a.toLowerCase() === b.toLowerCase();
}
