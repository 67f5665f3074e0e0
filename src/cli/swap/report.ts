// What is told of a swap, to people as it goes and to programs in the end?
import type { Standing } from '../../chain/check-standing.ts';
import type { CompareReport } from '../../compare/report.ts';
import type { CommandCall } from '../command.ts';
import type { ConformanceJson } from './examine.ts';
import type { Survey } from './survey.ts';

/** How it went. `same`: the candidate is there already. `declined`: the answer was no. `put back`: CHECK failed. */
export type Outcome = 'planned' | 'refused' | 'declined' | 'same' | 'swapped' | 'put back' | 'undone';

/** Everything that `--json` prints. */
export interface SwapReport extends Survey {
  readonly network: string;
  readonly outcome: Outcome;
  /** Why it was refused or put back, and what else is to be known. */
  readonly why?: string | undefined;
  readonly candidate?: string;
  readonly conformance?: ConformanceJson;
  readonly comparison?: CompareReport;
  /** CHECK before. */
  readonly before?: readonly Standing[];
  /** Of those that passed before, those that do not after. */
  readonly worse?: readonly Standing[];
}

/** Writes for people, unless the command is to print JSON. */
export function tell(call: CommandCall, text: string): void {
  if (!call.on('json')) call.out(text);
}

/** The last line, or the whole as JSON. @returns the exit code: 0 where the node is, or would be, as it was asked for */
export function conclude(call: CommandCall, { why, ...report }: SwapReport): number {
  const { outcome, network, type, uses, before, worse, ...more } = report;
  const shown = {
    ...{ outcome, why, network, link: type, ...more },
    calledBy: uses,
    ...(before ? { before: before.map(toJson) } : {}),
    ...(worse ? { worse: worse.map(toJson) } : {}),
  };
  if (call.on('json')) call.out(`${JSON.stringify(shown, null, 4)}\n`);
  else call.out(`${outcome}${why === undefined ? '' : `: ${why}`}\n`);
  return ['refused', 'declined', 'put back'].includes(outcome) || worse?.length ? 1 : 0;
}

function toJson({ containerId, ...standing }: Standing): object {
  return { ...standing, containerID: containerId };
}
