// Which devices do attachments hold that no longer exist?
import { sweepUnfinished } from '../../src/files/unfinished.ts';
import type { Call } from '../../src/plugin/define.ts';
import type { KeptAttachments } from '../../src/plugin/kept.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { tryGiveBack } from './give-back.ts';
import { listRecords, recordDirOf, removeOutdated } from './record.ts';

/** Returns the devices of the network's attachments that GC does not keep. All are tried. */
export async function returnStale(call: Call, kept: KeptAttachments): Promise<void> {
  const { environment, log, network } = call;
  // Listed before they are judged: see KeptAttachments.
  const stale = listRecords(environment).filter(record => record.network === network && !kept.has(record));
  await tryAll([
    ...stale.map(record => () => {
      log.info(
        `Returning device "${record.name}" of stale attachment ${record.containerId}/${record.ifname}`,
      );
      if (!tryGiveBack(call, record)) {
        log.warn(`Device "${record.name}" of container "${record.containerId}" is not on the host`);
      }
    }),
    () => removeOutdated(environment, network),
    () => void sweepUnfinished(recordDirOf(environment)),
  ]);
}
