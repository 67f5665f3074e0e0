// What does `catena log` print of a request, and of all that were traced?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { findTrace, listTraces, toRequest } from '../../observe/watcher.ts';
import { renderList, renderWaterfall } from '../../observe/waterfall.ts';
import type { CommandCall } from '../command.ts';
import { printAnswer, printList } from '../output/print.ts';
import { warn } from '../target.ts';
import { widthOf } from '../terminal/lines.ts';
import { traceDirFor } from '../watched.ts';

const NONE = 'no request was traced: the daemon keeps traces, and commands do with --trace\n';

/** Lists the stored traces, or draws one. */
export async function run(call: CommandCall): Promise<number> {
  const [id] = call.positionals;
  const dir = traceDirFor(call);
  if (id !== undefined) {
    const record = find(dir, id);
    await printAnswer(call, 'Request', toRequest(record), {
      text: () => renderWaterfall(record, call.on('kernel'), widthOf(call)),
      wide: () => renderWaterfall(record, true),
      names: () => [record.id],
    });
    return 0;
  }
  const { records, damaged } = listTraces(dir);
  await printList(call, 'RequestList', records.map(toRequest), {
    text: () => (records.length ? renderList(records, widthOf(call)) : NONE),
    names: () => records.map(({ id: one }) => one),
  });
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
