// How is a swap reported, to people as it proceeds and to programs at the end?

import type { AnswerOf } from '../../answers/kinds.ts';
import { defined } from '../../cni/defined.ts';
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
