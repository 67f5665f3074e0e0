// Is the CHECK of existing attachments the same after a swap as before?
import type { AttachmentCheck } from '../../watch/check-all.ts';

/** Attachments that passed before and fail now. */
export function findWorse(
  before: readonly AttachmentCheck[],
  after: readonly AttachmentCheck[],
): AttachmentCheck[] {
  const key = ({ network, containerId, ifname }: AttachmentCheck) => `${network}\n${containerId}\n${ifname}`;
  const sound = new Set(before.filter(({ state }) => state === 'sound').map(key));
  return after.filter(one => one.state === 'broken' && sound.has(key(one)));
}

/** The number of attachments in each state, and what is wrong with the broken ones. */
export function renderStanding(standing: readonly AttachmentCheck[]): string {
  const number = (state: AttachmentCheck['state']) => standing.filter(one => one.state === state).length;
  const unknown = number('unknown') ? `, ${number('unknown')} cannot be checked` : '';
  const broken = standing.filter(({ state }) => state === 'broken');
  return `CHECK: ${number('sound')} pass, ${broken.length} fail${unknown}\n${renderBroken(broken)}`;
}

/** One line per attachment. */
export function renderBroken(standing: readonly AttachmentCheck[]): string {
  return standing
    .map(({ network, containerId, ifname, problem }) => `  ${network} ${containerId} ${ifname}: ${problem}\n`)
    .join('');
}
