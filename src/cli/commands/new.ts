// What does `catena new` do?
import { type CommandCall, UsageError } from '../command.ts';

/** Writes the project of a plugin. */
export async function run(call: CommandCall): Promise<number> {
  throw new UsageError(`Cannot make "${call.positionals[0]}": not yet`);
}
