// Is an answer what the published schema of its kind says, and has it no key that the schema does not know?
import { expect } from 'bun:test';
import Ajv from 'ajv/dist/2020.js';
import { renderAnswerSchemas } from '../../plugins/build/answer-schemas.ts';
import { API_VERSION } from '../../src/cli/answers/envelope.ts';
import { type AnswerKind, type AnswerOf, DOCUMENTS, KINDS } from '../../src/cli/answers/kinds.ts';

const schemas = renderAnswerSchemas();
const ajv = new Ajv({ strict: true, allErrors: true });

/** Errors have no envelope. */
export function expectFailure(answer: unknown): void {
  const validate = ajv.compile(schemas.Failure ?? false);
  validate(answer);
  expect(validate.errors ?? []).toEqual([]);
  DOCUMENTS.Failure.parse(answer);
}

/** @returns the answer without its envelope */
export function expectAnswer<K extends AnswerKind>(kind: K, answer: unknown): AnswerOf<K> {
  const validate = ajv.compile(schemas[kind] ?? false);
  validate(answer);
  expect(validate.errors ?? []).toEqual([]);
  const { apiVersion, kind: given, ...value } = answer as Record<string, unknown>;
  expect([apiVersion, given]).toEqual([API_VERSION, kind]);
  return KINDS[kind].parse(value) as unknown as AnswerOf<K>;
}
