// How do the published schemas get into the executable?
import type { JsonObject } from '../src/cni/json.ts';
import { renderSchemas } from './schemas.ts' with { type: 'macro' };

/** The schemas by name, made when this file is bundled. */
export const SCHEMAS: Readonly<Record<string, JsonObject>> = renderSchemas();
