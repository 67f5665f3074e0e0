// Where is a packet stopped on its way through this node?
import type { JSX } from 'preact';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { leavesNode, titleOf } from '../../node/words.ts';
import type { ShownNode } from '../shown.ts';
import { Fix, Sign } from './badge.tsx';
import { usePolled } from './polling.ts';
import { endOf, hrefOfPacket } from './route.ts';

/** After a mend, it is seen to arrive. */
const EVERY_MS = 10_000;

type Walk = AnswerOf<'PacketWalk'>;

const OUTCOMES: Readonly<Record<Walk['outcome'], readonly [look: string, text: string]>> = {
  arrives: ['sound', '✓ It arrives, and so does the reply.'],
  stopped: ['broken', '✕ It is stopped.'],
  unknown: ['unsettled', '? Unknown: no hop stops it for certain.'],
};
const BEYOND = '✓ It leaves the node, and a reply comes back; what is beyond it is not known.';
const SIGNS = {
  passes: { look: 'sound', sign: '✓' },
  stops: { look: 'broken', sign: '✕' },
  unknown: { look: 'unsettled', sign: '?' },
};

/** The ends of a packet on this node. */
interface Ends {
  readonly node: ShownNode;
  readonly from: string;
  readonly to: string;
}

/** Two fields, and the hops of the packet that they name. Rules are simulated: nothing is sent. */
export function WhyNot({ node, from, to }: Ends): JSX.Element {
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

function Question({ node, from, to }: Ends): JSX.Element {
  const names = new Set(node.attachments.map(titleOf));
  const ports = node.attachments.flatMap(one => one.ports.map(endOf));
  const fields = [
    ['from', 'From', from, 'outside, node, a container', ['outside', 'node', ...names]],
    ['to', 'To', to, ':8080, web:80, 10.22.0.7:53/udp', ports],
  ] as const;
  const ask = (event: SubmitEvent): void => {
    event.preventDefault();
    const typed = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string): string => String(typed.get(name)).trim();
    location.hash = hrefOfPacket(text('from'), text('to'));
  };
  return (
    <form class="bar question" onSubmit={ask}>
      {fields.map(([name, label, value, placeholder, offers]) => (
        <label key={name}>
          {label}{' '}
          <input
            name={name}
            list={`${name}-names`}
            // Not its value: the page is drawn again while a person types.
            defaultValue={value}
            placeholder={placeholder}
            required={name === 'to'}
          />
          <datalist id={`${name}-names`}>
            {offers.map(offer => (
              <option key={offer} value={offer} />
            ))}
          </datalist>
        </label>
      ))}
      <button type="submit">Follow</button>
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
            <Sign {...SIGNS[state]} word={state} /> <strong>{name}</strong> <span class="quiet">{at}</span>:{' '}
            {evidence}
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
