// Which running container does a word mean, and which namespace is it in?

import { findNetnsIdentity } from '../../attachments/netns-identity.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import type { CniArgs } from '../../cni/env.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { namespacePath } from '../../files/read-file.ts';
import { type RecordedAttachment, readRecords } from '../../node/facts.ts';
import { namesOf, readStorageNames } from '../../node/names.ts';

/** A container with everything that is attached to it, by whichever runtime. */
export interface KnownContainer {
  readonly containerId: string;
  /** Never empty. */
  readonly attachments: readonly RecordedAttachment[];
}

/**
 * Finds a container by its id, the beginning of its id, its namespace (a path, or a name of `ip netns`), its name or its pod
 * (`namespace/name`, or the name alone).
 * @param cwd against which relative paths are resolved
 * @throws CniError 3 if nothing on record is of such a container, or if there are several; 5 if records cannot be listed
 */
export function findKnown(given: string, cwd: string | undefined, runtime: ChainRuntime): KnownContainer {
  const { attachments } = readRecords(runtime);
  const found = FINDERS.map(find => find(attachments, given, cwd)).find(list => list.length > 0) ?? [];
  const ids = [...new Set(found.map(({ known }) => known.containerId))];
  const [containerId, ...others] = ids;
  if (containerId !== undefined && others.length === 0)
    return { containerId, attachments: attachments.filter(({ known }) => known.containerId === containerId) };
  const why = others.length
    ? `there are ${ids.length} of them: ${ids.join(', ')}; use more of its id`
    : 'no attachment of it is on record, ours or of another runtime; catena ls shows which are';
  throw new CniError(ErrorCode.unknownContainer, `Cannot find container "${given}": ${why}`);
}

/**
 * The attachment that an interface, or a network to which the container is attached once, names.
 * @throws CniError 3 if there is none, or several
 */
export function pickAttachment(
  { containerId, attachments }: KnownContainer,
  given: string,
): RecordedAttachment {
  const byName = attachments.filter(({ known }) => known.ifname === given);
  const found = byName.length ? byName : attachments.filter(({ known }) => known.network === given);
  const [one, ...more] = found;
  if (one && more.length === 0) return one;
  const names = (list: readonly RecordedAttachment[]) =>
    list.map(({ known }) => `${known.network} ${known.ifname}`).join(', ');
  throw new CniError(
    ErrorCode.unknownContainer,
    one
      ? `Cannot choose between the attachments of container "${containerId}": ${names(found)}; name the interface`
      : `Cannot find interface or network "${given}" of container "${containerId}"; it has ${names(attachments)}`,
  );
}

/** Arguments of its first ADD that say which pod it is, for the plugins of further networks. */
export function podArgs({ attachments }: KnownContainer): CniArgs {
  const [first] = attachments.filter(({ known }) => known.args.length > 0);
  return first?.known.args.filter(([key]) => key === 'IgnoreUnknown' || key.startsWith('K8S_POD_')) ?? [];
}

type Find = (
  all: readonly RecordedAttachment[],
  given: string,
  cwd: string | undefined,
) => readonly RecordedAttachment[];

/** The most certain comes first. */
const FINDERS: readonly Find[] = [
  (all, given) => all.filter(({ known }) => known.containerId === given),
  (all, given) => {
    const storage = readStorageNames();
    return all.filter(({ known }) => {
      const { podNamespace, podName, containerName } = namesOf(known, storage);
      return containerName === given || (podName !== undefined && `${podNamespace}/${podName}` === given);
    });
  },
  (all, given, cwd) => (given === '' ? [] : inNamespace(all, namespacePath(given, cwd))),
  (all, given) => all.filter(({ known }) => namesOf(known, new Map()).podName === given),
  (all, given) => all.filter(({ known }) => given !== '' && known.containerId.startsWith(given)),
];

/** Another path may lead to the same namespace. */
function inNamespace(all: readonly RecordedAttachment[], path: string): RecordedAttachment[] {
  const identity = findNetnsIdentity(path);
  return all.filter(({ known: { netns } }) => {
    return netns === path || (identity !== undefined && findNetnsIdentity(netns) === identity);
  });
}
