// How does a command print its answer?
import { inEnvelope } from '../answers/envelope.ts';
import type { AnswerKind, AnswerOf } from '../answers/kinds.ts';
import type { CommandCall } from '../command.ts';
import { foldText, widthOf } from '../terminal/lines.ts';
import { isData, printData, toYaml } from './format.ts';

/** An answer for people. */
interface Texts {
  text(): string;
  /** With more columns. */
  wide?(): string;
  /** One name per line. */
  names?(): readonly string[];
}

/** The kinds that are a list, and what is in it. */
type ListKind = {
  [K in AnswerKind]: AnswerOf<K> extends { readonly items: readonly unknown[] } ? K : never;
}[AnswerKind];

/** As {@link printAnswer}, for an answer that is a list. */
export function printList<K extends ListKind>(
  call: CommandCall,
  kind: K,
  items: AnswerOf<K>['items'],
  texts: Texts | Texts['text'],
): Promise<void> {
  return printAnswer(call, kind, { items } as AnswerOf<K>, texts);
}

/** Prints an answer in the format that the command line asks for. @param texts only a text if no format has another */
export async function printAnswer<K extends AnswerKind>(
  call: CommandCall,
  kind: K,
  value: AnswerOf<K>,
  texts: Texts | Texts['text'],
): Promise<void> {
  const given: Texts = typeof texts === 'function' ? { text: texts } : texts;
  const { text, wide = text, names = () => [] } = given;
  if (isData(call)) return printData(call, inEnvelope(kind, value));
  if (call.format === 'name') call.out([...names(), ''].join('\n'));
  // A row is a line, however wide the terminal is.
  else if (call.format === 'wide') call.out(wide());
  // Other formats are for programs that draw.
  else call.out(['text', 'tree'].includes(call.format) ? foldText(text(), widthOf(call)) : text());
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
