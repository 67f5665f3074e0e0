// Placeholder until the lab exists.
import { type CommandCall, UsageError } from '../command.ts';
export async function run(_call: CommandCall): Promise<number> {
  throw new UsageError('not built yet');
}
