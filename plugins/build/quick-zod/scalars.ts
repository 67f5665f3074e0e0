// Which values without members are certainly valid?
import { type Check, Schema, UNSURE } from './schema.ts';

export function string(): Schema {
  return new Schema({
    make: zod => zod.string(),
    accept: value => (typeof value === 'string' ? value : UNSURE),
    isSure: true,
  });
}

export function boolean(): Schema {
  return new Schema({
    make: zod => zod.boolean(),
    accept: value => (typeof value === 'boolean' ? value : UNSURE),
    isSure: true,
  });
}

export function number(): Schema {
  return new Schema({
    make: zod => zod.number(),
    accept: value => (Number.isFinite(value) ? value : UNSURE),
    isSure: true,
  });
}

export function int(): Schema {
  return new Schema({
    make: zod => zod.int(),
    accept: value => (Number.isSafeInteger(value) ? value : UNSURE),
    isSure: true,
  });
}

export function unknown(): Schema {
  return new Schema({ make: zod => zod.unknown(), accept: value => value });
}

export function literal(value: string): Schema {
  return new Schema({
    make: zod => zod.literal(value),
    accept: given => (given === value ? given : UNSURE),
    isSure: true,
  });
}

function enumOf(values: readonly string[]): Schema {
  return new Schema({
    make: zod => zod.enum(values as [string, ...string[]]),
    accept: value => (values.includes(value as string) ? value : UNSURE),
    isSure: true,
  });
}

export { enumOf as enum };

export function custom(holds: (value: unknown) => boolean): Schema {
  return new Schema({ make: zod => zod.custom(holds), accept: value => (holds(value) ? value : UNSURE) });
}

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
