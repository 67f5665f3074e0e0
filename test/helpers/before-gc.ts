// When does an attachment count as begun before GC?
import { FILE_CLOCK_LAG_MS } from '../../src/attachments/snapshot.ts';

/**
 * Waits until what was attached counts as begun before a GC that begins now. When a process began is known to two ticks (startedAt()),
 * and file times are up to one behind: what was written that short a time before GC may count as written since, and stays.
 */
export function untilBeforeGc(): Promise<void> {
  return Bun.sleep(4 * FILE_CLOCK_LAG_MS);
}
