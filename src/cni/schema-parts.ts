// Which pieces do schemas have in common?
//
// A schema is made anew by each process that starts, and one of a piece that is there already costs nothing.
import * as z from 'zod/mini';

/** A text that may be left out. */
export const optionalText = z.optional(z.string());

/** A whole number that may be left out. */
export const optionalInt = z.optional(z.int());

/** True or false, or left out. */
export const optionalFlag = z.optional(z.boolean());

/** Texts that may be left out. */
export const optionalTexts = z.optional(z.array(z.string()));

/** An object of any keys that may be left out. */
export const optionalObject = z.optional(z.looseObject({}));
