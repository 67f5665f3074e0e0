// Which address does an attachment ask for, if not any?
import { stretchContains } from '../ipam/stretch.ts';
import type { Ip } from '../net/ip.ts';
import { type HeldBlock, usableOf } from './held.ts';
import type { ClaimKey } from './objects.ts';

/** A wish for particular addresses, or for those that the one before had. Only pools of single addresses grant it. */
export interface Wish {
  /** For whom the addresses are kept afterwards, in the whole cluster: {@link keyOfPod} or {@link keyOfClaim}. */
  readonly keptFor: string | undefined;
  /** Seconds that they are kept while no attachment has them; undefined: until the claim is deleted. */
  readonly keepS: number | undefined;
  /** What they must be; empty if that does not matter. */
  readonly addresses: readonly Ip[];
  /** Whether other addresses than those that are kept would be wrong. */
  readonly isPromise: boolean;
  /** A machine moves here: it is to have what is kept while the attachment that it leaves has it, too. */
  readonly joins?: boolean;
}

/** The part of a wish that an object says. */
export type Kept = Pick<Wish, 'keptFor' | 'keepS'>;

/** Of what is for any attachment. */
export const NOT_KEPT: Kept = { keptFor: undefined, keepS: undefined };

/** For an interface of the pods of one name, of which a StatefulSet has one at a time. */
export function keyOfPod(network: string, namespace: string, name: string, ifname: string): string {
  return `pod/${network}/${namespace}/${name}/${ifname}`;
}

/** For an IPAMClaim. */
export function keyOfClaim({ namespace, name, uid }: ClaimKey): string {
  return `claim/${namespace}/${name}/${uid}`;
}

/** The claim of a key; undefined for that of a pod. */
export function claimOfKey(key: string): ClaimKey | undefined {
  const [kind, namespace = '', name = '', uid = ''] = key.split('/');
  return kind === 'claim' ? { namespace, name, uid } : undefined;
}

/** Whether a block is what is wished for, or with no wish, one for anything. */
export function isFor(block: HeldBlock, wish: Wish | undefined): boolean {
  if (block.keptFor !== wish?.keptFor || block.idle || (block.guest && !wish?.joins)) return false;
  const has = (ip: Ip) => usableOf(block).some(({ from, to }) => stretchContains([from, to], ip));
  return wish === undefined || wish.addresses.every(has);
}
