// What does a file contain, and where in it is each value?

import { readFileSync } from 'node:fs';
import * as z from 'zod/mini';
import { defined, describeIssue, didYouMean, foldKeys, isObject, type JsonObject } from '../../cni/json.ts';
import { findSyntaxProblem, type Places, readPlaces, type TextPlace } from '../../cni/json-place.ts';
import type { Finding, Rule, Severity } from './finding.ts';

/** Keys and indexes from the top of a document to a value. */
export type Path = readonly (string | number)[];

/** A file that holds a JSON object. */
export interface Document {
  readonly file: string;
  readonly value: JsonObject;
  readonly places: Places;
}

/** The parts of a finding apart from its position. */
export type Complaint = readonly [
  severity: Severity,
  rule: Rule,
  message: string,
  details?: readonly string[],
];

/** Reads a file; an unusable file results in a finding. */
export function readDocument(file: string): { document?: Document; findings: Finding[] } {
  const refuse = (at: TextPlace, rule: Rule, message: string) => {
    return { findings: [place(file, at, ['error', rule, message])] };
  };
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const message = `Cannot read the file: ${(cause as Error).message}`;
    return refuse({ line: 1, column: 1 }, 'unreadable', message);
  }
  const syntax = findSyntaxProblem(text);
  if (syntax !== undefined)
    return refuse(syntax, 'syntax', `not JSON: ${syntax.problem}${adviseOnSyntax(text, syntax)}`);
  const places = readPlaces(text);
  const value: unknown = JSON.parse(text);
  if (!isObject(value))
    return refuse(places.valueAt([]), 'shape', 'a network configuration is a JSON object');
  const findings = places.repeated.map(at => {
    return place(file, at, ['warning', 'repeated-key', `duplicate key "${at.key}": the last one is used`]);
  });
  return { document: { file, value, places }, findings };
}

/** A finding about the value at a path, or about its nearest ancestor if it is absent. */
export function atValue({ file, value, places }: Document, path: Path, complaint: Complaint): Finding {
  return place(file, places.valueAt(spellingOf(value, path)), complaint);
}

/** A finding about the key itself. */
export function atKey({ file, value, places }: Document, path: Path, complaint: Complaint): Finding {
  return place(file, places.keyAt(spellingOf(value, path)), complaint);
}

/** The path as spelled in the document, since plugins match keys case-insensitively. */
function spellingOf(value: unknown, path: Path): Path {
  const [first, ...rest] = path;
  if (first === undefined) return [];
  if (Array.isArray(value)) return [first, ...spellingOf(value[Number(first)], rest)];
  if (!isObject(value)) return path;
  const exact = Object.hasOwn(value, first) ? String(first) : undefined;
  const folded = String(first).toLowerCase();
  const key = exact ?? Object.keys(value).find(one => one.toLowerCase() === folded) ?? String(first);
  return [key, ...spellingOf(value[key], rest)];
}

function place(
  file: string,
  { line, column }: TextPlace,
  [severity, rule, message, details]: Complaint,
): Finding {
  return { file, line, column, severity, rule, message, ...defined({ details }) };
}

/**
 * Advice to add to the message about a syntax problem, beginning with "; "; empty where there is none.
 * @param place where reading stopped
 */
export function adviseOnSyntax(text: string, { line, column }: TextPlace): string {
  const lines = text.split('\n');
  const here = lines[line - 1] ?? '';
  const found = here[column - 1] ?? '';
  const before = [...lines.slice(0, line - 1), here.slice(0, column - 1)].join('\n').trimEnd();
  if (found === '/' || found === '#') return '; JSON has no comments';
  if (found === "'" || found === '`') return '; JSON wants double quotes';
  if (found === '\ufeff') return '; save the file without a byte order mark';
  if (before.endsWith(',') && (found === '}' || found === ']'))
    return '; JSON has no comma after the last value';
  if (/["}\]\de]$/.test(before) && (found === '"' || found === '{' || found === '['))
    return '; a comma is missing before it';
  if (/[{,]$/.test(before) && /[A-Za-z_]/.test(found)) return '; JSON wants keys in double quotes';
  return '';
}

export interface Problem {
  readonly path: Path;
  readonly message: string;
}

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
    const near = issue.input === undefined ? nearKey(value, path) : '';
    return { path, message: `${describeIssue(issue)}${near}` };
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
    const folded = known.find(one => !exact && one.toLowerCase() === key.toLowerCase());
    const name = known.find(one => one === key) ?? folded;
    if (name === undefined) {
      if (/^[_$#]|\//.test(key)) return [];
      return [{ path: [...path, key], message: `key "${key}" is not known${didYouMean(key, known)}` }];
    }
    if (open.includes(name)) return [];
    const inside = defs.flatMap(({ shape }) => shape?.[name] ?? []);
    return findUnknownKeys(inside, member, {}, [...path, key]);
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
  const above = path.slice(0, -1);
  const parent = above.reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], value);
  const missing = path.at(-1);
  if (!isObject(parent) || typeof missing !== 'string') return '';
  const near = Object.keys(parent).find(key => didYouMean(key, [missing]) !== '');
  return near === undefined ? '' : `; is "${near}" a typo?`;
}
