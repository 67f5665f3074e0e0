// What does `catena completion` do?
import { didYouMean } from '../../cni/suggest.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { SCRIPTS, SHELLS } from '../completion/scripts.ts';

/** Prints what the shell reads. */
export async function run(call: CommandCall): Promise<number> {
  const [given = ''] = call.positionals;
  const shell = SHELLS.find(one => one === given);
  if (shell === undefined)
    throw new UsageError(
      `Cannot complete for "${given}": there are ${SHELLS.join(', ')}${didYouMean(given, SHELLS)}`,
    );
  call.out(SCRIPTS[shell]);
  return 0;
}
