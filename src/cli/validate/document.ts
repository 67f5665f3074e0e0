// What does a file contain, and where in it is each value?
import { readFileSync } from 'node:fs';
import { defined, isObject, type JsonObject } from '../../cni/json.ts';
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
type Complaint = readonly [severity: Severity, rule: Rule, message: string, details?: readonly string[]];

/** Reads a file; an unusable file results in a finding. */
export function readDocument(file: string): { document?: Document; findings: Finding[] } {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const message = `Cannot read the file: ${(cause as Error).message}`;
    return { findings: [place(file, { line: 1, column: 1 }, ['error', 'unreadable', message])] };
  }
  const syntax = findSyntaxProblem(text);
  if (syntax !== undefined) {
    const message = `not JSON: ${syntax.problem}${adviseOnSyntax(text, syntax)}`;
    return { findings: [place(file, syntax, ['error', 'syntax', message])] };
  }
  const places = readPlaces(text);
  const value: unknown = JSON.parse(text);
  if (!isObject(value)) {
    const message = 'a network configuration is a JSON object';
    return { findings: [place(file, places.valueAt([]), ['error', 'shape', message])] };
  }
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
