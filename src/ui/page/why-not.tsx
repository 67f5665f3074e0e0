// Where is a packet stopped on its way through this node?
import type { JSX } from 'preact';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { leavesNode, titleOf } from '../../node/words.ts';
import type { ShownNode } from '../shown.ts';
import { Fix } from './badge.tsx';
import { usePolled } from './polling.ts';
import { hrefOfPacket } from './route.ts';

/** After a mend, it is seen to arrive. */
const EVERY_MS = 10_000;

type Walk = AnswerOf<'PacketWalk'>;

const OUTCOMES: Readonly<Record<Walk['outcome'], readonly [look: string, text: string]>> = {
  arrives: ['sound', '✓ It arrives, and so does the reply.'],
  stopped: ['broken', '✕ It is stopped.'],
  unknown: ['unsettled', '? Unknown: no hop stops it for certain.'],
};
const BEYOND = '✓ It leaves the node, and a reply comes back; what is beyond it is not known.';
const SIGNS: Readonly<Record<Walk['hops'][number]['state'], readonly [look: string, sign: string]>> = {
  passes: ['sound', '✓'],
  stops: ['broken', '✕'],
  unknown: ['unsettled', '?'],
};

/** Two fields, and the hops of the packet that they name. Rules are simulated: nothing is sent. */
export function WhyNot(props: {
  readonly node: ShownNode;
  readonly from: string;
  readonly to: string;
}): JSX.Element {
  const { node, from, to } = props;
  const path = to === '' ? undefined : `why-not/${from}~${to}`;
  const { value, problem } = usePolled<Walk>(path, EVERY_MS);
  return (
    <section aria-labelledby="why-not-title">
      <h2 id="why-not-title" tabIndex={-1}>
        Why does a packet not arrive?
      </h2>
      <Question key={`${from} ${to}`} node={node} from={from} to={to} />
      {problem !== undefined && <p class="notice broken">{problem}</p>}
      {path === undefined && (
        <p class="quiet">
          The packet and its reply are followed through routes, rules and sockets of this node; none is sent.
        </p>
      )}
      {path !== undefined && value === undefined && problem === undefined && <p class="quiet">Following …</p>}
      {value !== undefined && <Hops walk={value} />}
    </section>
  );
}

function Question(props: {
  readonly node: ShownNode;
  readonly from: string;
  readonly to: string;
}): JSX.Element {
  const { attachments } = props.node;
  const names = [...new Set(attachments.map(titleOf))];
  const ask = (event: SubmitEvent): void => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string): string => String(fields.get(name)).trim();
    location.hash = hrefOfPacket(text('from'), text('to'));
  };
  return (
    <form class="bar question" onSubmit={ask}>
      <label>
        From{' '}
        <input
          name="from"
          list="from-names"
          // Not its value: the page is drawn again while a person types.
          defaultValue={props.from}
          placeholder="outside, node, a container"
        />
      </label>
      <label>
        To{' '}
        <input
          name="to"
          list="to-names"
          defaultValue={props.to}
          placeholder=":8080, web:80, 10.22.0.7:53/udp"
          required
        />
      </label>
      <button type="submit">Follow</button>
      <datalist id="from-names">
        {['outside', 'node', ...names].map(name => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <datalist id="to-names">
        {attachments
          .flatMap(({ ports }) => ports)
          .map(({ hostPort, protocol }) => `:${hostPort}${protocol === 'udp' ? '/udp' : ''}`)
          .map(port => (
            <option key={port} value={port} />
          ))}
      </datalist>
    </form>
  );
}

function Hops({ walk: { outcome, hops } }: { readonly walk: Walk }): JSX.Element {
  const [look, end] = OUTCOMES[outcome];
  const text = outcome === 'arrives' && leavesNode(hops) ? BEYOND : end;
  return (
    <>
      <ol class="findings">
        {hops.map(({ name, at, state, evidence, mend }, i) => (
          <li key={i}>
            <span class={`badge ${SIGNS[state][0]}`}>
              <span aria-hidden="true">{SIGNS[state][1]}</span> {state}
            </span>{' '}
            <strong>{name}</strong> <span class="quiet">{at}</span>: {evidence}
            <Fix mend={mend} />
          </li>
        ))}
      </ol>
      <p class={`notice verdict ${look}`} role="status">
        {text}
      </p>
    </>
  );
}
