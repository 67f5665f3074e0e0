// How is a swap reported, to people as it proceeds and to programs at the end, and is CHECK the same after it as before?
import type { AnswerOf } from '../../answers/kinds.ts';
import { defined } from '../../cni/defined.ts';
import type { AttachmentCheck } from '../../watch/check-all.ts';
import type { CommandCall } from '../command.ts';
import { noteDone } from '../log/events.ts';
import { isData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';

/** Everything that `--json` prints. */
export type SwapReport = AnswerOf<'Replacement'>;

/** Prints text for people, unless the command prints JSON. */
export function tell(call: CommandCall, text: string): void {
  if (!isData(call)) call.out(text);
}

/**
 * Prints the last line, or the whole report as JSON. @returns the exit code: 0 if the node is, or would be, in the requested
 * state
 */
export async function conclude(
  call: CommandCall,
  report: Omit<SwapReport, 'why'> & { readonly why?: string | undefined },
): Promise<number> {
  const { outcome, why, ...seen } = report;
  const { target, candidate, worse } = seen;
  if (outcome === 'swapped' || outcome === 'undone' || outcome === 'put back') {
    const what = `"${target}": ${outcome}${candidate === undefined ? '' : `, candidate "${candidate}"`}`;
    noteDone(call, 'SWAP', `${what}${why === undefined ? '' : `: ${why}`}`);
  }
  const answer = { outcome, ...defined({ why }), ...seen };
  const text = () => `${outcome}${why === undefined ? '' : `: ${why}`}\n`;
  await printAnswer(call, 'Replacement', answer, { text });
  return ['refused', 'declined', 'put back'].includes(outcome) || worse?.length ? 1 : 0;
}

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
