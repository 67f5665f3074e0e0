// What do the executables use in place of zod/mini?
//
// Zod makes a schema by running some dozen functions for the first time, and a plugin that runs for a few milliseconds pays for
// that at every start: more than half of all that our modules cost before the first request to the kernel. So here a schema is a
// note of how zod makes it, and a function that accepts a valid value and copies it as zod would. What that function does not
// accept, zod itself reads again: every refusal and its text, and every kind of schema that is not known here, is zod's own.
//
// The build (../build.ts) puts this module in zod/mini's place. The sources, the library and the tests that run from source use
// zod; test/property/quick-zod.test.ts compares both.

import type * as Zod from 'zod/mini';

/** See {@link Schema.register}. */
export const globalRegistry = undefined;

export function safeParse(schema: Schema, ...args: Parameters<Schema['safeParse']>): unknown {
  return schema.safeParse(...args);
}

type ZodSchema = Zod.core.$ZodType;
type ZodCheck = Zod.core.$ZodCheck<never>;
type Zods = typeof Zod;

type Params = Parameters<Zods['safeParse']>[2];

/** The answer of {@link Accept} for a value that zod must read. */
const UNSURE = Symbol('unsure');

/** Copies a value that is certainly valid. @returns {@link UNSURE} for any other */
type Accept = (value: unknown) => unknown;

/** What `decode` and `validate` ask of a schema's definition. */
interface Definition {
  readonly type?: string;
  readonly innerType?: Schema;
  readonly element?: Schema;
  readonly valueType?: Schema;
  readonly shape?: Shape;
}

type Shape = Readonly<Record<string, Schema>>;

/** What zod makes of an absent member: it stays absent, or gets a value. Otherwise it is required. */
type Absence = 'optional' | 'defaulted' | undefined;

interface Draft {
  /** Has zod make the same schema. */
  readonly make: (zod: Zods) => ZodSchema;
  readonly def?: Definition;
  readonly accept?: Accept;
  readonly absence?: Absence;
  /** Zod refuses, too, whatever `accept` is unsure of. */
  readonly isSure?: boolean;
}

/** Leaves every value to zod. */
const unsure: Accept = () => UNSURE;

/** How zod makes a schema, and which values it certainly accepts. */
class Schema {
  readonly make: Draft['make'];
  readonly accept: Accept;
  readonly absence: Absence;
  readonly isSure: boolean;
  readonly _zod: { readonly def: Definition };
  #made: ZodSchema | undefined;

  constructor({ make, def = {}, accept = unsure, absence, isSure = false }: Draft) {
    this.make = make;
    this.accept = accept;
    this.absence = absence;
    this.isSure = isSure;
    this._zod = { def };
  }

  get shape(): Shape | undefined {
    return this._zod.def.shape;
  }

  /** Zod's own schema. */
  get zod(): ZodSchema {
    this.#made ??= this.make(zod());
    return this.#made;
  }

  check(...checks: readonly Check[]): Schema {
    const { accept, absence, isSure } = this;
    return new Schema({
      make: () =>
        (this.zod as Zod.ZodMiniType).check(
          ...checks.map(check => check.make(zod()) as Zod.core.$ZodCheck<unknown>),
        ),
      def: this._zod.def,
      absence,
      isSure,
      accept: value => {
        const accepted = accept(value);
        return accepted !== UNSURE && checks.every(({ holds }) => holds(accepted)) ? accepted : UNSURE;
      },
    });
  }

  safeParse(value: unknown, params?: Params): unknown {
    const data = this.accept(value);
    return data === UNSURE ? zod().safeParse(this.zod, value, params) : { success: true, data };
  }

  parse(value: unknown, params?: Params): unknown {
    const data = this.accept(value);
    return data === UNSURE ? zod().parse(this.zod, value, params) : data;
  }

  /** What is registered describes a schema to tools, and the executables contain those schemas ready made. */
  register(): Schema {
    return this;
  }
}

/** What else holds for a valid value. */
interface Check {
  readonly make: (zod: Zods) => ZodCheck;
  readonly holds: (value: unknown) => boolean;
}

let loaded: Zods | undefined;

/** Zod itself, in a chunk of its own. */
function zod(): Zods {
  loaded ??= require('./full.ts') as Zods;
  return loaded;
}

/** A kind of value of which zod, too, refuses all that fails the test. */
function scalar(make: Draft['make'], holds: (value: unknown) => boolean): Schema {
  return new Schema({ make, accept: value => (holds(value) ? value : UNSURE), isSure: true });
}

export function string(): Schema {
  return scalar(
    zod => zod.string(),
    value => typeof value === 'string',
  );
}

export function boolean(): Schema {
  return scalar(
    zod => zod.boolean(),
    value => typeof value === 'boolean',
  );
}

export function number(): Schema {
  return scalar(zod => zod.number(), Number.isFinite);
}

export function int(): Schema {
  return scalar(zod => zod.int(), Number.isSafeInteger);
}

export function unknown(): Schema {
  return new Schema({ make: zod => zod.unknown(), accept: value => value });
}

export function literal(value: string): Schema {
  return scalar(
    zod => zod.literal(value),
    given => given === value,
  );
}

function enumOf(values: readonly string[]): Schema {
  return scalar(
    zod => zod.enum(values as [string, ...string[]]),
    value => values.includes(value as string),
  );
}

export { enumOf as enum };

export function refine(holds: (value: unknown) => boolean, message?: string): Check {
  return { make: zod => zod.refine(holds, message), holds };
}

export function regex(pattern: RegExp, message?: string): Check {
  return {
    make: zod => zod.regex(pattern, message),
    // As zod does: a global pattern would otherwise continue where it stopped.
    holds: value => {
      pattern.lastIndex = 0;
      return pattern.test(value as string);
    },
  };
}

export function startsWith(prefix: string, message?: string): Check {
  return {
    make: zod => zod.startsWith(prefix, message),
    holds: value => (value as string).startsWith(prefix),
  };
}

export function minLength(length: number, message?: string): Check {
  return {
    make: zod => zod.minLength(length, message),
    holds: value => (value as string | unknown[]).length >= length,
  };
}

export function maxLength(length: number, message?: string): Check {
  return {
    make: zod => zod.maxLength(length, message),
    holds: value => (value as string | unknown[]).length <= length,
  };
}

export function minimum(limit: number, message?: string): Check {
  return { make: zod => zod.minimum(limit, message), holds: value => (value as number) >= limit };
}

export function maximum(limit: number, message?: string): Check {
  return { make: zod => zod.maximum(limit, message), holds: value => (value as number) <= limit };
}

export function positive(message?: string): Check {
  return { make: zod => zod.positive(message), holds: value => (value as number) > 0 };
}

export function array(element: Schema): Schema {
  return new Schema({
    make: zod => zod.array(element.zod),
    def: { type: 'array', element },
    isSure: element.isSure,
    accept: value => {
      if (!Array.isArray(value)) return UNSURE;
      const accepted = value.map(element.accept);
      return accepted.includes(UNSURE) ? UNSURE : accepted;
    },
  });
}

export function tuple(items: readonly Schema[]): Schema {
  return new Schema({ make: zod => zod.tuple(items.map(item => item.zod) as [ZodSchema, ...ZodSchema[]]) });
}

export function record(key: Schema, valueType: Schema): Schema {
  return new Schema({
    make: zod => zod.record(key.zod as Zod.core.$ZodRecordKey, valueType.zod),
    def: { type: 'record', valueType },
    accept: value => {
      if (!isObject(value)) return UNSURE;
      const accepted: Record<string, unknown> = {};
      for (const [name, member] of Object.entries(value)) {
        const copy = name === '__proto__' || key.accept(name) !== name ? UNSURE : valueType.accept(member);
        if (copy === UNSURE) return UNSURE;
        accepted[name] = copy;
      }
      return accepted;
    },
  });
}

export function union(options: readonly Schema[], message?: string): Schema {
  const make: Draft['make'] = zod =>
    zod.union(
      options.map(option => option.zod),
      message,
    );
  // What becomes of an absent value is then for zod to say.
  if (options.some(({ absence }) => absence !== undefined)) return new Schema({ make, absence: 'defaulted' });
  return new Schema({
    make,
    isSure: options.every(({ isSure }) => isSure),
    accept: value => {
      for (const { accept, isSure } of options) {
        const accepted = accept(value);
        // The first valid option counts, and zod may know that this one is.
        if (accepted !== UNSURE || !isSure) return accepted;
      }
      return UNSURE;
    },
  });
}

export function optional(innerType: Schema): Schema {
  const absence = innerType.absence ?? 'optional';
  return new Schema({
    make: zod => zod.optional(innerType.zod),
    def: { innerType },
    absence,
    isSure: innerType.isSure,
    accept: value => (value === undefined && absence === 'optional' ? undefined : innerType.accept(value)),
  });
}

export function nullable(innerType: Schema): Schema {
  return new Schema({
    make: zod => zod.nullable(innerType.zod),
    def: { innerType },
    absence: innerType.absence,
    isSure: innerType.isSure,
    accept: value => (value === null ? null : innerType.accept(value)),
  });
}

/** @param value a scalar, or a function that makes the value */
function withDefault(innerType: Schema, value: unknown): Schema {
  const fallback = typeof value === 'function' ? (value as () => unknown) : () => structuredClone(value);
  return new Schema({
    make: zod => zod._default(innerType.zod, value),
    def: { innerType },
    absence: 'defaulted',
    isSure: innerType.isSure,
    accept: given => (given === undefined ? fallback() : innerType.accept(given)),
  });
}

export { withDefault as _default };

type Unlisted = 'copy' | 'drop' | 'refuse';

function objectOf(shape: Shape, unlisted: Unlisted, make: Draft['make']): ObjectSchema {
  const schema = new Schema({
    make,
    def: { type: 'object', shape },
    accept: acceptObject(shape, unlisted),
  });
  return Object.assign(schema, { unlisted });
}

type ObjectSchema = Schema & { readonly unlisted: Unlisted };

export function object(shape: Shape): ObjectSchema {
  return objectOf(shape, 'drop', zod => zod.object(zodShape(shape)));
}

export function looseObject(shape: Shape): ObjectSchema {
  return objectOf(shape, 'copy', zod => zod.looseObject(zodShape(shape)));
}

export function strictObject(shape: Shape): ObjectSchema {
  return objectOf(shape, 'refuse', zod => zod.strictObject(zodShape(shape)));
}

export function extend(base: ObjectSchema, shape: Shape): ObjectSchema {
  return objectOf({ ...base.shape, ...shape }, base.unlisted, zod =>
    zod.extend(base.zod as Zod.ZodMiniObject, zodShape(shape)),
  );
}

function zodShape(shape: Shape): Record<string, ZodSchema> {
  return Object.fromEntries(Object.entries(shape).map(([key, schema]) => [key, schema.zod]));
}

function acceptObject(shape: Shape, unlisted: Unlisted): Accept {
  return value => {
    if (!isObject(value)) return UNSURE;
    const accepted: Record<string, unknown> = {};
    for (const key of Object.keys(shape)) {
      const { accept, absence } = shape[key] as Schema;
      const isPresent = key in value;
      if (!isPresent && absence === 'optional') continue;
      if (!isPresent && absence === undefined) return UNSURE;
      const member = accept(value[key]);
      if (member === UNSURE) return UNSURE;
      accepted[key] = member;
    }
    if (unlisted === 'drop') return accepted;
    for (const key in value) {
      if (Object.hasOwn(shape, key)) continue;
      if (unlisted === 'refuse' || key === '__proto__') return UNSURE;
      accepted[key] = value[key];
    }
    return accepted;
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
