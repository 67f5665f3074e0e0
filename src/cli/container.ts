// Which recorded container, and which of its attachments, does a command line mean?
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { runnerJournals } from '../cni/directories.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { absolutePath } from '../files/absolute-path.ts';
import { compareNetns, findNetnsIdentity } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { listRecords } from '../journal/store.ts';
import type { CommandCall } from './command.ts';

/** A record, and the journal that it is in. */
export interface Recorded {
  readonly record: AttachmentRecord;
  readonly stateDir: string;
}

/**
 * The recorded attachments of one container, of the tool and of the delegate runner.
 * @param given its id, the beginning of its id, or a path of its network namespace
 * @throws CniError 3 if there is no such container, or several
 */
export function findContainer(
  given: string,
  call: Pick<CommandCall, 'cwd'>,
  { stateDir = '' }: ChainRuntime,
): Recorded[] {
  const dirs = [stateDir, runnerJournals(stateDir).delegates];
  const all = dirs.flatMap(dir => listRecords(dir).records.map(record => ({ record, stateDir: dir })));
  const found = given.includes('/') ? inNamespace(all, absolutePath(given, call.cwd)) : withId(all, given);
  const ids = [...new Set(found.map(({ record }) => record.containerId))];
  if (ids.length === 1) return found;
  const several = `there are ${ids.length} of them: ${ids.join(', ')}`;
  throw new CniError(
    ErrorCode.unknownContainer,
    `Cannot find container "${given}": ${ids.length ? several : 'no attachment of it is in the journal; catena adopt takes over what other runtimes made'}`,
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

function withId(all: readonly Recorded[], given: string): Recorded[] {
  const exact = all.filter(({ record }) => record.containerId === given);
  return exact.length ? exact : all.filter(({ record }) => given && record.containerId.startsWith(given));
}

/** Another path may lead to the same namespace, and the same path to that of a later container. */
function inNamespace(all: readonly Recorded[], path: string): Recorded[] {
  const identity = findNetnsIdentity(path);
  if (identity === undefined) return all.filter(({ record }) => record.netns === path);
  return all.filter(
    ({ record }) => record.netnsIdentity === identity && compareNetns(path, record) === 'same',
  );
}
