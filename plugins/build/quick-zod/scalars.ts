// Which values without members are certainly valid?
import { Schema, UNSURE } from './schema.ts';

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
