// Which schemas are published, as a value? The executable contains no sources, so the build inserts the finished value here.
import type { JsonObject } from '../../src/cni/json.ts';
import { renderSchemas } from './schemas.ts';

/** The schemas by name. */
export const SCHEMAS: Readonly<Record<string, JsonObject>> = await renderSchemas();
