// Which values are certainly valid that consist of others?
import type * as Zod from 'zod/mini';
import { type Accept, type Draft, Schema, type Shape, UNSURE, type ZodSchema } from './schema.ts';

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
