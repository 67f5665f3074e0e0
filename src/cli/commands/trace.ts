// What does `catena trace` do?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { findTrace, listTraces } from '../../observe/trace-ring.ts';
import { renderList, renderWaterfall } from '../../observe/waterfall.ts';
import type { CommandCall } from '../command.ts';
import { warn } from '../target.ts';
import { traceDirFor } from '../watched.ts';

/** Lists the stored traces, or draws one. */
export async function run(call: CommandCall): Promise<number> {
  const [id] = call.positionals;
  const dir = traceDirFor(call);
  if (id !== undefined) {
    const record = find(dir, id);
    call.out(
      call.on('json') ? `${JSON.stringify(record, null, 2)}\n` : renderWaterfall(record, call.on('kernel')),
    );
    return 0;
  }
  const { records, damaged } = listTraces(dir);
  call.out(call.on('json') ? `${JSON.stringify(records, null, 2)}\n` : renderList(records));
  for (const file of damaged)
    warn(call, new CniError(ErrorCode.decodingFailure, `Cannot read trace "${file}"`));
  return 0;
}

function find(dir: string, id: string): ReturnType<typeof findTrace> {
  try {
    return findTrace(dir, id);
  } catch (cause) {
    if (cause instanceof CniError) throw cause;
    throw new CniError(ErrorCode.unknown, (cause as Error).message, { cause });
  }
}
