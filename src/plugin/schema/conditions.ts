// Which part of a list does the schema of one plugin hold for?
import type { JsonObject } from '../../cni/json.ts';

/** For an entry whose `type` it is. The schema is below `$defs`. */
export function whenType(type: string): JsonObject {
  const condition = { properties: { type: { const: type } }, required: ['type'] };
  // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
  return { if: condition, then: { $ref: `#/$defs/${type}` } };
}

/** For an entry whose plugin calls it for addresses. */
export function whenIpam(type: string): JsonObject {
  const ipam = { properties: { type: { const: type } }, required: ['type'] };
  // biome-ignore lint/suspicious/noThenProperty: the keyword of JSON Schema
  return { if: { properties: { ipam }, required: ['ipam'] }, then: { $ref: `#/$defs/${type}` } };
}
