// What is a schema before zod is loaded?
import type * as Zod from 'zod/mini';

export type ZodSchema = Zod.core.$ZodType;
type ZodCheck = Zod.core.$ZodCheck<never>;
export type Zods = typeof Zod;

type Params = Parameters<Zods['safeParse']>[2];

/** The answer of {@link Accept} for a value that zod must read. */
export const UNSURE = Symbol('unsure');

/** Copies a value that is certainly valid. @returns {@link UNSURE} for any other */
export type Accept = (value: unknown) => unknown;

/** What `decode` and `validate` ask of a schema's definition. */
interface Definition {
  readonly type?: string;
  readonly innerType?: Schema;
  readonly element?: Schema;
  readonly valueType?: Schema;
  readonly shape?: Shape;
}

export type Shape = Readonly<Record<string, Schema>>;

/** What zod makes of an absent member: it stays absent, or gets a value. Otherwise it is required. */
type Absence = 'optional' | 'defaulted' | undefined;

export interface Draft {
  /** Has zod make the same schema. */
  readonly make: (zod: Zods) => ZodSchema;
  readonly def?: Definition;
  readonly accept?: Accept;
  readonly absence?: Absence;
  /** Zod refuses, too, whatever `accept` is unsure of. */
  readonly isSure?: boolean;
}

/** Leaves every value to zod. */
export const unsure: Accept = () => UNSURE;

/** How zod makes a schema, and which values it certainly accepts. */
export class Schema {
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
export interface Check {
  readonly make: (zod: Zods) => ZodCheck;
  readonly holds: (value: unknown) => boolean;
}

let loaded: Zods | undefined;

/** Zod itself, in a chunk of its own. */
export function zod(): Zods {
  loaded ??= require('./full.ts') as Zods;
  return loaded;
}
