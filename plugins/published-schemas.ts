// Which schemas are published, as a value? In the executable, which has no sources, the build puts the finished value here.
import type { JsonObject } from '../src/cni/json.ts';
import { renderSchemas } from './schemas.ts';

/** The schemas by name. */
export const SCHEMAS: Readonly<Record<string, JsonObject>> = renderSchemas();
