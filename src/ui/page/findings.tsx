// What does the doctor find on this node?
import type { JSX } from 'preact';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { count } from '../../lab/words.ts';
import { Fix, Sign } from './badge.tsx';
import { usePolled } from './polling.ts';
import { hrefOf, type ViewProps } from './route.ts';
import { matcherOf } from './search.ts';

/** The doctor runs CHECK of every attachment. */
const EVERY_MS = 15_000;

type Diagnosis = AnswerOf<'Diagnosis'>;
type Finding = Diagnosis['findings'][number];

const SIGNS: Readonly<Record<Finding['severity'], readonly [sign: string, look: string]>> = {
  error: ['✕', 'broken'],
  warning: ['!', 'unsettled'],
  unexamined: ['?', 'unknown'],
  info: ['i', 'unchecked'],
  ok: ['✓', 'sound'],
};

/** The worst first; what is fine is folded. */
export function Findings({ query }: ViewProps): JSX.Element {
  const { value, problem } = usePolled<Pick<Diagnosis, 'verdict' | 'findings'>>('findings', EVERY_MS);
  const matches = matcherOf(query);
  const all = value?.findings.filter(({ id, found, mend = '' }) => matches(`${id} ${found} ${mend}`)) ?? [];
  const fine = all.filter(({ severity }) => severity === 'ok');
  const others = all.filter(({ severity }) => severity !== 'ok');
  return (
    <section aria-labelledby="findings-title">
      <h2 id="findings-title" tabIndex={-1}>
        Findings
      </h2>
      {problem !== undefined && <p class="notice broken">{problem}</p>}
      {value === undefined && problem === undefined && <p class="quiet">Examining the node …</p>}
      {value !== undefined && (
        <p class={`notice verdict ${lookOf(value.verdict)}`}>{value.verdict.summary}</p>
      )}
      <List findings={others} />
      {fine.length > 0 && (
        <details>
          <summary>{count(fine.length, 'check')} found no problem</summary>
          <List findings={fine} />
        </details>
      )}
    </section>
  );
}

function lookOf({ state, errors }: Diagnosis['verdict']): string {
  return { healthy: 'sound', blind: 'unknown', 'to do': errors > 0 ? 'broken' : 'unsettled' }[state];
}

function List({ findings }: { readonly findings: readonly Finding[] }): JSX.Element | null {
  if (findings.length === 0) return null;
  return (
    <ul class="findings">
      {findings.map(({ id, severity, found, mend, attachment }) => {
        const [sign, look] = SIGNS[severity];
        return (
          <li key={`${id} ${found}`} class={look}>
            <Sign look={look} sign={sign} word={severity} /> <strong>{id}</strong>: {found}
            {attachment !== undefined && ' '}
            {attachment !== undefined && <a href={hrefOf(attachment)}>Show it</a>}
            <Fix mend={mend} />
          </li>
        );
      })}
    </ul>
  );
}
