// What may the word that is being typed become?
import { COMMANDS } from '../commands.ts';
import { type Kind, kindOfArgument, kindOfOption } from './kinds.ts';
import { type Line, optionsFor, readLine } from './line.ts';
import { type Candidate, ON_NODE, type Place } from './on-node.ts';

/**
 * One line per word, with a tab and a description after it. The line `:files` or `:dirs` asks the shell for its own completion of
 * paths.
 */
export function answer(words: readonly string[], place: Place): string {
  const line = readLine(words);
  const { found, paths } = offer(line, place);
  const lines = found
    .filter(({ word }) => word.startsWith(line.word) && (line.word !== '' || !word.startsWith('-')))
    .filter(({ word }) => !/[\s\p{Cc}]/u.test(word))
    .map(({ word, about }) => `${line.prefix}${word}\t${about.replaceAll(/\s+/g, ' ')}`);
  return [...new Set(lines), ...paths].map(text => `${text}\n`).join('');
}

interface Offer {
  readonly found: readonly Candidate[];
  readonly paths: readonly string[];
}

function offer(line: Line, place: Place): Offer {
  const { command, pending, word, positionals, argumentsOnly } = line;
  const options = optionsFor(command);
  if (pending !== undefined) {
    const option = options[pending];
    return option?.type === 'string' ? ofKind(kindOfOption(pending, option), line, place) : nothing();
  }
  if (line.before.length === 0) return { ...nothing(), found: [...commands(), ...OF_THE_TOOL] };
  if (!argumentsOnly && word.startsWith('-')) {
    const open = Object.entries(options).filter(([name, { multiple }]) => multiple || !line.given.has(name));
    return { ...nothing(), found: open.map(([name, { help }]) => ({ word: `--${name}`, about: help })) };
  }
  return command ? ofKind(kindOfArgument(command, positionals.length), line, place) : nothing();
}

/** What may stand in place of a command. */
const OF_THE_TOOL: readonly Candidate[] = [
  { word: '--help', about: 'show usage' },
  { word: '--version', about: "show the tool's version" },
];

function commands(): Candidate[] {
  return COMMANDS.map(({ name, summary }) => ({ word: name, about: summary }));
}

function ofKind(kind: Kind, line: Line, place: Place): Offer {
  switch (kind.kind) {
    case 'none':
      return nothing();
    case 'files':
    case 'dirs':
      return { found: [], paths: [`:${kind.kind}`] };
    case 'known':
      return { found: kind.words.map(word => ({ word, about: '' })), paths: [] };
    default: {
      const { kind: names } = kind;
      return { found: onNode(() => ON_NODE[names](line, place)), paths: alsoFiles(line) };
    }
  }
}

/** Arguments that are a name as well as a file. */
function alsoFiles({ command, pending }: Line): string[] {
  const both = ['explain', 'try', 'compare'];
  return pending === undefined && both.includes(command?.name ?? '') ? [':files'] : [];
}

/** A shell must not show an error in the middle of a command line. */
function onNode(read: () => Candidate[]): Candidate[] {
  try {
    return read();
  } catch {
    return [];
  }
}

function nothing(): Offer {
  return { found: [], paths: [] };
}
