// How is the diagnosis of a node shown to people?
import type { Finding } from '../doctor/finding.ts';
import { groupBy } from '../doctor/group.ts';
import type { DoctorVerdict } from '../doctor/verdict.ts';
import { type Colour, oneLine, painter, type Style } from '../lab/paint.ts';

/** Of findings that differ only in the attachment, this many are shown. */
const MOST_ALIKE = 10;

const WORDS: Readonly<Record<Finding['severity'], readonly [word: string, colour: Colour]>> = {
  error: ['error', 'red'],
  warning: ['warning', 'yellow'],
  unexamined: ['unseen', 'yellow'],
  info: ['info', 'dim'],
  ok: ['ok', 'green'],
};
const WORD_WIDTH = 8;

/**
 * Findings in their order, a fix once for all that it fixes, then the verdict.
 * @param all also shows checks that found nothing, and every one of many similar findings
 */
export function renderDiagnosis(
  findings: readonly Finding[],
  { state, summary }: DoctorVerdict,
  { colour, all }: Style & { readonly all: boolean },
): string {
  const paint = painter({ colour });
  const fine = findings.filter(({ severity }) => severity === 'ok');
  const shown = all ? findings : findings.filter(({ severity }) => severity !== 'ok');
  const lines = groupsOf(shown).flatMap(group => {
    const [{ mend } = {}] = group;
    const most = all ? group.length : MOST_ALIKE;
    const rest = group.length - most;
    return [
      ...group.slice(0, most).map(({ id, severity, found }) => {
        const [word, hue] = WORDS[severity];
        return `${paint(hue, word)}${' '.repeat(WORD_WIDTH - word.length)} ${id}: ${oneLine(found)}`;
      }),
      ...(rest > 0 ? [`${GAP}and ${rest} more like these; --all shows them`] : []),
      ...(mend === undefined ? [] : [`${GAP}fix: ${oneLine(mend)}`]),
    ];
  });
  const hidden =
    fine.length > 0 && !all
      ? [
          fine.length === 1
            ? '1 check found no problem; --all shows it'
            : `${fine.length} checks found no problem; --all shows them`,
        ]
      : [];
  const verdict = paint(state === 'healthy' ? 'green' : state === 'blind' ? 'yellow' : 'red', summary);
  return [...lines, ...hidden, verdict, ''].join('\n');
}

const GAP = ' '.repeat(WORD_WIDTH + 1);

/** Findings of one check with the same fix stand together. */
function groupsOf(findings: readonly Finding[]): (readonly Finding[])[] {
  const keyOf = ({ id, severity, found, mend }: Finding) => `${severity} ${id} ${mend ?? found}`;
  return [...groupBy(findings, keyOf).values()];
}
