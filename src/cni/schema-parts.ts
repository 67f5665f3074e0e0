// Which pieces do the schemas share?
//
// Every process builds its schemas at start; a shared piece is built only once.
import * as z from 'zod/mini';

/** An optional string. */
export const optionalText = z.optional(z.string());

/** An optional integer. */
export const optionalInt = z.optional(z.int());

/** An optional boolean. */
export const optionalFlag = z.optional(z.boolean());

/** An optional array of strings. */
export const optionalTexts = z.optional(z.array(z.string()));

/** An optional object with any keys. */
export const optionalObject = z.optional(z.looseObject({}));
