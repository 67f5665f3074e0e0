// Is this node healthy, and if not, how much is there to do?
import type { AnswerOf } from '../answers/kinds.ts';
import type { Finding, Severity } from './finding.ts';

/** The findings in one line, and what the exit code says. */
export type DoctorVerdict = AnswerOf<'Diagnosis'>['verdict'];

/** Sums up what was found. @param mayBecomeRoot whether root would see more */
export function judge(findings: readonly Finding[], mayBecomeRoot: boolean): DoctorVerdict {
  const those = (severity: Severity) => findings.filter(one => one.severity === severity);
  const [errors, warnings] = [those('error'), those('warning')];
  const thingsToDo = new Set([...errors, ...warnings].map(({ mend, found }) => mend ?? found)).size;
  const unexamined = those('unexamined').length;
  const state = thingsToDo > 0 ? 'to do' : unexamined > 0 ? 'blind' : 'healthy';
  const kinds = [counted(errors.length, 'error'), counted(warnings.length, 'warning')].filter(
    text => text !== '',
  );
  const blind = `${counted(unexamined, 'thing')} could not be examined${mayBecomeRoot ? ': run as root' : ''}`;
  const parts = [
    ...(thingsToDo > 0 ? [`${counted(thingsToDo, 'thing')} to do (${kinds.join(', ')})`] : []),
    ...(state === 'blind' ? ['nothing wrong in what could be examined'] : []),
    ...(unexamined > 0 ? [blind] : []),
  ];
  return {
    state,
    thingsToDo,
    errors: errors.length,
    warnings: warnings.length,
    unexamined,
    notes: those('info').length,
    summary: parts.join('; ') || 'healthy',
  };
}

/** Exit codes: 0 healthy, or only warnings; 1 an error; 3 no error, but not everything could be examined. */
export function exitCodeOf({ errors, unexamined }: DoctorVerdict): number {
  if (errors > 0) return 1;
  return unexamined > 0 ? 3 : 0;
}

function counted(number: number, one: string): string {
  return number === 0 ? '' : `${number} ${one}${number === 1 ? '' : 's'}`;
}
