// Has an attachment outlived its namespace, as far as this node shows?

import { compareNetns, findNetnsIdentity } from '../../attachments/netns-identity.ts';
import { type KnownAttachment, pastOf, type RememberedAdd } from '../../attachments/store.ts';
import type { ChainRuntime } from '../run/runtime.ts';

/** What an attachment is judged by. */
export interface Judged extends Pick<KnownAttachment, 'record'> {
  readonly known: Pick<RememberedAdd, 'netns' | 'ifname'>;
}

/**
 * Whether its path names no namespace, or a later one than that of its ADD. False if it names no path. A path may be visible to
 * others only: see {@link judgeGone}.
 */
export function isNamespaceGone({ known: { netns }, record }: Judged): boolean {
  if (netns === '') return false;
  return record?.netns === netns
    ? compareNetns(netns, record) !== 'same'
    : findNetnsIdentity(netns) === undefined;
}

/** containerd records its loopback as an attachment. */
export const LOOPBACK = 'lo';

/** What is known of an attachment whose namespace cannot be found. */
export interface GoneJudgement {
  readonly why: string;
  /** Whether that proves that its namespace is gone. */
  readonly isSure: boolean;
  readonly isEarlier?: true;
}

/**
 * A missing path is not enough: one of the attachment's devices on the host has to be missing, too, since the kernel deletes a pair
 * of devices with the namespace that one end is in. Undefined if its namespace stands, or nothing says where it was.
 * @param one.devices names of the devices of its result that are on the host
 * @param present names of the devices of the host, asked only if they matter
 */
export function judgeGone(
  one: Judged & { readonly devices: readonly string[] },
  present: () => ReadonlySet<string>,
  { env }: Pick<ChainRuntime, 'env'>,
): GoneJudgement | undefined {
  const { known, record, devices } = one;
  const past = record && pastOf(record, env);
  if (past?.kind === 'outlived') return { why: past.why ?? '', isSure: true, isEarlier: true };
  if (!isNamespaceGone(one)) return undefined;
  if (known.ifname === LOOPBACK)
    return {
      why: `namespace "${known.netns}" is gone, and a loopback has nothing outside of it`,
      isSure: true,
    };
  const missing = devices.find(name => !present().has(name));
  if (missing !== undefined)
    return { why: `namespace "${known.netns}" and device "${missing}" are gone`, isSure: true };
  return {
    why: `namespace "${known.netns}" is not visible here, but no device of the attachment is missing on the host`,
    isSure: false,
  };
}
