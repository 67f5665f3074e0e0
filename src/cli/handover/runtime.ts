// How are our plugins asked to hand over, whatever executables the node has now?
import { basename, dirname, join } from 'node:path';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { ownSegments, ownWorker, type WorkerSource } from '../../worker/client.ts';
import type { CommandCall } from '../command.ts';
import { runtimeOf } from '../target.ts';

/**
 * A runtime in which a worker of this executable serves every plugin that this executable contains. Whether there is something to
 * hand over depends on what an attachment is made of, not on the file in the node's directory: after a rollback, that is the
 * reference's.
 */
export function handoverRuntime(call: CommandCall): ChainRuntime {
  return {
    ...runtimeOf(call),
    segments: ownSegments(throughThisFile(call.workers ?? ownWorker()), call.cwd),
    find: type => join(dirname(process.execPath), type),
    isOwn: path => call.plugins.types.includes(basename(path)),
  };
}

/** A plugin is identified by its name; a file of that name need not exist. */
function throughThisFile(source: WorkerSource): WorkerSource {
  const path = process.execPath;
  return {
    use: ({ env }, work, which) => source.use({ path, env }, work, which),
  };
}
