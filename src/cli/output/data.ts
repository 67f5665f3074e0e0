// How does a command print a value for programs?
//
// Commands that run a chain print with this alone: what is for people asks for the terminal's width, which costs a module of Node.
import { inEnvelope } from '../answers/envelope.ts';
import type { AnswerKind, AnswerOf } from '../answers/kinds.ts';
import type { CommandCall } from '../command.ts';

/** Results of the specification look like those of cnitool. */
export const CNITOOLS_INDENT = 4;

/** Prints a value as YAML or else JSON: one in its envelope, or a document that others define. */
export async function printData(call: CommandCall, value: unknown, indent = 2): Promise<void> {
  call.out(call.format === 'yaml' ? await toYaml(value) : `${JSON.stringify(value, null, indent)}\n`);
}

/** Prints one of many answers, which a reader gets one by one: a line of JSON, or a YAML document. */
export async function printOne<K extends AnswerKind>(
  call: CommandCall,
  kind: K,
  value: AnswerOf<K>,
): Promise<void> {
  const answer = inEnvelope(kind, value);
  call.out(call.format === 'yaml' ? `---\n${await toYaml(answer)}` : `${JSON.stringify(answer)}\n`);
}

/** The package is loaded only here, by a command that needs it. */
async function toYaml(value: unknown): Promise<string> {
  const { stringify } = await import('yaml');
  // Without anchors: readers of other languages differ in what they make of them.
  return stringify(JSON.parse(JSON.stringify(value)), { aliasDuplicateObjects: false });
}
