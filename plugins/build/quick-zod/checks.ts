// What else can a schema require?
import type { Check } from './schema.ts';

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
