// How is a swap reported, to people as it proceeds and to programs at the end?
import type { AttachmentCheck } from '../../chain/records/check-attachments.ts';
import type { CompareReport } from '../../compare/report.ts';
import type { CommandCall } from '../command.ts';
import type { ConformanceJson } from './examine.ts';
import type { Survey } from './survey.ts';

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
  if (!call.on('json')) call.out(text);
}

/**
 * Prints the last line, or the whole report as JSON. @returns the exit code: 0 if the node is, or would be, in the requested
 * state
 */
export function conclude(call: CommandCall, { why, ...report }: SwapReport): number {
  const { outcome, network, type, uses, before, worse, ...more } = report;
  const shown = {
    outcome,
    why,
    network,
    link: type,
    ...more,
    calledBy: uses,
    ...(before ? { before: before.map(toJson) } : {}),
    ...(worse ? { worse: worse.map(toJson) } : {}),
  };
  if (call.on('json')) call.out(`${JSON.stringify(shown, null, 4)}\n`);
  else call.out(`${outcome}${why === undefined ? '' : `: ${why}`}\n`);
  return ['refused', 'declined', 'put back'].includes(outcome) || worse?.length ? 1 : 0;
}

function toJson({ containerId, ...standing }: AttachmentCheck): object {
  return { ...standing, containerID: containerId };
}
