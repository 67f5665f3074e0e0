// Which schemas are published, as a value? The executable contains no sources, so the build inserts the finished value here.
import type { JsonObject } from '../../src/cni/json.ts';
import { renderAnswerSchemas } from './answer-schemas.ts';
import { renderSchemas } from './schemas.ts';

export const SCHEMAS: Readonly<Record<string, JsonObject>> = await renderSchemas();

/** Those of what is printed, by kind. */
export const ANSWER_SCHEMAS: Readonly<Record<string, JsonObject>> = renderAnswerSchemas();
