// How is a handover of attachments reported?
import type { Handover } from '../../handover/hand-over.ts';
import { oneLine } from '../../lab/words.ts';

const STATES = ['handed over', 'pending', 'ready', 'refused'] as const;

/** A line for each attachment with what each of its plugins had, then the number of attachments in each state. */
export function renderHandovers(handovers: readonly Handover[]): string {
  const lines = handovers.flatMap(({ state, network, containerId, ifname, links: plugins, why }) => [
    `${state.padEnd(11)}  ${network} ${containerId} ${ifname}${why === undefined ? '' : `: ${why}`}`,
    ...plugins.map(({ link, parts }) => `  ${link}: ${parts.join(', ')}`),
  ]);
  const counts = STATES.map(state => `${handovers.filter(one => one.state === state).length} ${state}`);
  return `${[...lines, `attachments: ${counts.join(', ')}`].map(oneLine).join('\n')}\n`;
}
