// Which recorded container, and which of its attachments, does a command line mean?
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { findKnown } from '../running/container.ts';
import type { CommandCall } from './command.ts';

/** A record, and the journal that it is in. */
export interface Recorded {
  readonly record: AttachmentRecord;
  readonly stateDir: string;
}

/**
 * The recorded attachments of one container, of the tool and of the delegate runner.
 * @param given see {@link findKnown}
 * @throws CniError 3 if there is no such container, if there are several, or if only other runtimes know it
 */
export function findContainer(
  given: string,
  call: Pick<CommandCall, 'cwd'>,
  runtime: ChainRuntime,
): Recorded[] {
  const { attachments } = findKnown(given, call.cwd, runtime);
  const found = attachments.flatMap(({ record, stateDir }) =>
    record && stateDir ? { record, stateDir } : [],
  );
  if (found.length > 0) return found;
  throw new CniError(
    ErrorCode.unknownContainer,
    `Cannot find container "${given}" in the journal: another runtime attached it; catena adopt records what others attached`,
  );
}

/**
 * The one attachment of a container to a network.
 * @throws CniError 3 if there is none, or several
 */
export function pickAttachment(
  found: readonly Recorded[],
  network: string,
  ifname: string | undefined,
): Recorded {
  const matching = found.filter(
    ({ record }) => record.network === network && (ifname === undefined || record.ifname === ifname),
  );
  const [one, ...more] = matching;
  if (one && more.length === 0) return one;
  const id = found[0]?.record.containerId ?? '';
  const names = (list: readonly Recorded[]) =>
    list.map(({ record }) => `${record.network} ${record.ifname}`).join(', ');
  throw new CniError(
    ErrorCode.unknownContainer,
    one
      ? `Cannot choose between the attachments of container "${id}": ${names(matching)}; name the interface with --ifname`
      : `Cannot find an attachment of container "${id}" to network "${network}"; it has ${names(found)}`,
  );
}
