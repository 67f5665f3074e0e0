// What does `catena gc` do?
import { collectGarbage, type GcScope } from '../../chain/run.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { loadTarget, runtimeOf } from '../target.ts';

/** Deletes what is not named as valid; with `--all`, everything on record for the network. */
export async function run(call: CommandCall): Promise<number> {
  const scope = scopeOf(call);
  await collectGarbage(loadTarget(call), scope, runtimeOf(call));
  return 0;
}

/** The cache is shared with every runtime of the host: deleting all of it must be said. */
function scopeOf(call: CommandCall): GcScope {
  const valid = call.texts('valid');
  if (call.on('all') === valid.length > 0) {
    throw new UsageError(
      'Cannot collect garbage: say which attachments to keep with --valid <id>/<ifname>, or --all to keep none',
    );
  }
  if (call.on('all')) return { all: true };
  return {
    valid: valid.map(text => {
      const [containerID = '', ifname = '', ...more] = text.split('/');
      if (containerID && ifname && !more.length) return { containerID, ifname };
      throw new UsageError(`Cannot use --valid "${text}": expected <container id>/<ifname>`);
    }),
  };
}
