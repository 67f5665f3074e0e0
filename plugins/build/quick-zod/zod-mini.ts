// What do the executables use in place of zod/mini?
//
// Zod makes a schema by running some dozen functions for the first time, and a plugin that runs for a few milliseconds pays for
// that at every start: more than half of all that our modules cost before the first request to the kernel. So here a schema is a
// note of how zod makes it, and a function that accepts a valid value and copies it as zod would. What that function does not
// accept, zod itself reads again: every refusal and its text, and every kind of schema that is not known here, is zod's own.
//
// The build (../embedded.ts) puts this module in zod/mini's place. The sources, the library and the tests that run from source use
// zod; test/property/quick-zod.test.ts compares both.
import type { Schema } from './schema.ts';

export {
  _default,
  array,
  boolean,
  custom,
  enum,
  extend,
  int,
  literal,
  looseObject,
  maximum,
  maxLength,
  minimum,
  minLength,
  nullable,
  number,
  object,
  optional,
  positive,
  record,
  refine,
  regex,
  startsWith,
  strictObject,
  string,
  tuple,
  union,
  unknown,
} from './schema.ts';

/** See {@link Schema.register}. */
export const globalRegistry = undefined;

export function safeParse(schema: Schema, ...args: Parameters<Schema['safeParse']>): unknown {
  return schema.safeParse(...args);
}

export function parse(schema: Schema, ...args: Parameters<Schema['parse']>): unknown {
  return schema.parse(...args);
}
