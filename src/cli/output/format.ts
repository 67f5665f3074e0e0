// In which format does a command print, and how a value for programs?
//
// Commands that run a chain print with this alone: what is for people asks for the terminal's width, which costs a module of Node.
import type { CommandCall, CommandOption } from '../command.ts';

/** Formats for programs, which every command has. */
export const DATA_FORMATS = ['json', 'yaml'] as const;

/** Formats of commands that list things. */
export const LIST_FORMATS = [...DATA_FORMATS, 'wide', 'name'] as const;

/** The formats of a command, of which `--help` tells. */
export function outputOption(formats: readonly string[], help: string): CommandOption {
  return { type: 'string', placeholder: '<format>', choices: formats, help };
}

/** Whether the output is for programs: nothing else may be among it. */
export function isData({ format }: Pick<CommandCall, 'format'>): boolean {
  return DATA_FORMATS.some(one => one === format);
}

/** Whether a command line asks for data, as far as that can be said of one that is wrong. */
export function asksForData(args: readonly string[]): boolean {
  const given = args.flatMap((one, at) => (one === '--output' ? `--output=${args[at + 1]}` : one));
  return given.includes('--json') || DATA_FORMATS.some(format => given.includes(`--output=${format}`));
}

/** Results of the specification look like those of cnitool. */
export const CNITOOLS_INDENT = 4;

/** Prints a value as YAML or else JSON: one in its envelope, or a document that others define. */
export async function printData(call: CommandCall, value: unknown, indent = 2): Promise<void> {
  call.out(call.format === 'yaml' ? await toYaml(value) : `${JSON.stringify(value, null, indent)}\n`);
}

/** The package is loaded only here, by a command that needs it. */
export async function toYaml(value: unknown): Promise<string> {
  const { stringify } = await import('yaml');
  // Without anchors: readers of other languages differ in what they make of them.
  return stringify(JSON.parse(JSON.stringify(value)), { aliasDuplicateObjects: false });
}
