// In which format does a command print its value?
import { type CommandCall, UsageError } from '../command.ts';

/** `--output`, or the only other format that `--json` selects. @throws UsageError */
export function outputOf<T extends string>(call: CommandCall, formats: readonly T[]): T | 'text' {
  const text = call.text('output');
  if (text === undefined) return 'text';
  const known = formats.find(one => one === text);
  if (known !== undefined) return known;
  throw new UsageError(`Cannot use --output "${text}": expected ${formats.join(', ')}`);
}

/** Prints a value as JSON. */
export function printJson(call: CommandCall, value: unknown): void {
  call.out(`${JSON.stringify(value, null, 2)}\n`);
}

/** Prints a value as YAML. */
export async function printYaml(call: CommandCall, value: unknown): Promise<void> {
  const { stringify } = await import('yaml');
  call.out(stringify(value));
}
