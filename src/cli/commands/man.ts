// What does `catena man` do?
import { didYouMean } from '../../cni/suggest.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { renderCommand, renderTop } from '../man/page.ts';

/** Prints a page as `man -l -` reads it. */
export async function run({ positionals: [name], table, out }: CommandCall): Promise<number> {
  if (name === undefined) {
    out(renderTop(table));
    return 0;
  }
  const command = table.commands.find(one => one.name === name);
  const names = table.commands.map(one => one.name);
  if (command === undefined)
    throw new UsageError(`Cannot show the manual of "${name}": no such command${didYouMean(name, names)}`);
  out(renderCommand(command, table));
  return 0;
}
