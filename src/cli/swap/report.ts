// How is a swap reported, to people as it proceeds and to programs at the end?
import { defined } from '../../cni/defined.ts';
import type { CompareReport } from '../../compare/report.ts';
import type { AttachmentCheck } from '../../watch/check-all.ts';
import type { CommandCall } from '../command.ts';
import { noteDone } from '../log/events.ts';
import { isData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';
import type { ConformanceJson } from './examine.ts';
import { type Survey, surveyToJson } from './survey.ts';

/** Outcome of a swap. `same`: the candidate is already installed. `declined`: the user said no. `put back`: CHECK failed. */
export type Outcome = 'planned' | 'refused' | 'declined' | 'same' | 'swapped' | 'put back' | 'undone';

/** Everything that `--json` prints. */
export interface SwapReport extends Survey {
  readonly network: string;
  readonly outcome: Outcome;
  /** Why it was refused or put back, and anything else worth knowing. */
  readonly why?: string | undefined;
  readonly candidate?: string;
  readonly conformance?: ConformanceJson;
  readonly comparison?: CompareReport;
  /** CHECK before the swap. */
  readonly before?: readonly AttachmentCheck[];
  /** Attachments that passed before the swap and fail after it. */
  readonly worse?: readonly AttachmentCheck[];
}

/** Prints text for people, unless the command prints JSON. */
export function tell(call: CommandCall, text: string): void {
  if (!isData(call)) call.out(text);
}

/**
 * Prints the last line, or the whole report as JSON. @returns the exit code: 0 if the node is, or would be, in the requested
 * state
 */
export async function conclude(call: CommandCall, { why, ...report }: SwapReport): Promise<number> {
  const { outcome, network, worse, candidate, conformance, comparison, before, ...surveyed } = report;
  if (outcome === 'swapped' || outcome === 'undone' || outcome === 'put back') {
    const what = `"${surveyed.target}": ${outcome}${candidate === undefined ? '' : `, candidate "${candidate}"`}`;
    noteDone(call, 'SWAP', `${what}${why === undefined ? '' : `: ${why}`}`);
  }
  await printAnswer(
    call,
    'Replacement',
    {
      ...{ outcome, ...defined({ why }), network, ...surveyToJson(surveyed) },
      ...defined({ candidate, conformance, comparison, before, worse }),
    },
    { text: () => `${outcome}${why === undefined ? '' : `: ${why}`}\n` },
  );
  return ['refused', 'declined', 'put back'].includes(outcome) || worse?.length ? 1 : 0;
}
