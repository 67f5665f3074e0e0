// In which format does a command print?
import { type Command, type CommandCall, type CommandOption, UsageError } from '../command.ts';

/** Formats for programs, which every command has. */
export const DATA_FORMATS = ['json', 'yaml'] as const;

/** Formats of commands that list things. */
export const LIST_FORMATS = [...DATA_FORMATS, 'wide', 'name'] as const;

/** The formats of a command, of which `--help` tells. */
export function outputOption(formats: readonly string[], help: string): CommandOption {
  return { type: 'string', placeholder: '<format>', choices: formats, help };
}

/**
 * `--output`, for which `--json` is short; `text` if neither is given.
 * @param values the parsed options
 * @param option of this command
 * @throws UsageError
 */
export function readFormat(
  values: Readonly<Record<string, unknown>>,
  { choices = [] }: CommandOption,
  { name }: Pick<Command, 'name'>,
): string {
  const { output, json } = values;
  if (typeof output !== 'string') return json === true ? 'json' : 'text';
  if (json === true && output !== 'json')
    throw new UsageError(`Cannot use both --json and --output "${output}"`);
  if (choices.includes(output)) return output;
  throw new UsageError(
    `Cannot use --output "${output}": expected ${choices.join(', ')}; see catena help ${name}`,
  );
}

/** Whether the output is for programs: nothing else may be among it. */
export function isData({ format }: Pick<CommandCall, 'format'>): boolean {
  return DATA_FORMATS.some(one => one === format);
}

/** Whether a command line asks for data, as far as that can be said of one that is wrong. */
export function asksForData(args: readonly string[]): boolean {
  return (
    args.includes('--json') ||
    DATA_FORMATS.some(
      format =>
        args.includes(`--output=${format}`) ||
        args.some((one, at) => one === '--output' && args[at + 1] === format),
    )
  );
}
