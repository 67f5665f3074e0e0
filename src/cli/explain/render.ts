// How is an explanation shown to a person?

import type { AnswerOf } from '../answers/kinds.ts';
import { wrap } from '../terminal/lines.ts';
import type { CodeExplanation } from './codes.ts';
import type { ListExplanation, OptionExplanation, PluginExplanation } from './list.ts';

/** Whether a runtime uses the file of the list, and why. */
export type RuntimeVerdict = AnswerOf<'NetworkExplanation'>['runtimes'][number];

/** @param width of the terminal, in columns */
export function renderCode({ code, meaning, causes, advice }: CodeExplanation, width: number): string {
  return [
    ...wrap(`code ${code}: ${meaning}`, width),
    'usual causes',
    ...causes.flatMap(cause => wrap(`- ${cause}`, width, '  ')),
    'what to do',
    ...advice.flatMap(one => wrap(`- ${one}`, width, '  ')),
    '',
  ].join('\n');
}

/** @param width of the terminal, in columns */
export function renderList(
  { network, cniVersion, options, plugins, reach }: ListExplanation,
  verdicts: readonly RuntimeVerdict[],
  width: number,
): string {
  const count = plugins.length === 1 ? '1 plugin' : `${plugins.length} plugins`;
  return [
    `network ${network}, CNI ${cniVersion}: ADD calls ${count} in this order, DEL in the opposite one`,
    ...options.flatMap(({ meaning = 'no key of the specification', ...option }) =>
      wrap(`${assignment(option)}: ${meaning}`, width, '   '),
    ),
    ...plugins.flatMap((plugin, i) => ['', ...pluginLines(plugin, `${i + 1}  `, width)]),
    ...(reach.length ? ['', 'who reaches whom'] : []),
    ...reach.flatMap(sentence => wrap(sentence, width, '   ')),
    ...(verdicts.length ? ['', 'runtimes'] : []),
    ...verdicts.flatMap(({ runtime, used, why }) =>
      wrap(`${runtime}: ${used ? 'used' : 'not used'}: ${why}`, width, '   '),
    ),
    '',
  ].join('\n');
}

/** @param head what stands before the type */
function pluginLines(plugin: PluginExplanation, head: string, width: number): string[] {
  const { type, kind, summary, options, defaults, capabilities, idleWithout, effects, ipam } = plugin;
  const title = kind
    ? `${type} (${kind}) ${summary}`
    : `${type}: no schema beside its executable says what its options mean`;
  const indent = head.replace(/\S.*/, '   ');
  const passed = capabilities.join(', ');
  return [
    ...wrap(title, width, head, indent),
    ...options.flatMap(option => optionLines(option, kind !== undefined, width, indent)),
    ...(passed ? wrap(`a runtime may pass: ${passed}`, width, indent) : []),
    ...(idleWithout ? wrap(`does nothing for a container without ${idleWithout}`, width, indent) : []),
    ...effects.flatMap(effect => wrap(`=> ${effect}`, width, indent)),
    ...(defaults.length
      ? wrap(`left at the default: ${defaults.map(assignment).join(', ')}`, width, indent)
      : []),
    ...(ipam ? pluginLines(ipam, `${indent}calls `, width) : []),
  ];
}

/** @param isKnown whether the plugin says which options it has */
function optionLines(option: OptionExplanation, isKnown: boolean, width: number, indent: string): string[] {
  const unknown = isKnown ? ': unknown to the plugin, which ignores it' : '';
  // Descriptions of schemas are Markdown.
  const meaning = option.meaning === undefined ? unknown : `: ${option.meaning.replaceAll('`', '')}`;
  return wrap(`${assignment(option)}${meaning}`, width, indent);
}

function assignment({ name, value }: OptionExplanation): string {
  return `${name} = ${JSON.stringify(value)}`;
}
