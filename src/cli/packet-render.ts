// How is the walk of a packet shown to a person?
import { type Colour, oneLine, painter, type Style } from '../lab/paint.ts';
import type { Hop, Outcome } from '../packet/hop.ts';
import { wrap } from './terminal/wrap.ts';

const MARKS: Readonly<Record<Hop['state'], readonly [mark: string, colour: Colour]>> = {
  passes: ['✓', 'green'],
  stops: ['✗', 'red'],
  unknown: ['?', 'yellow'],
};

const ENDINGS: Readonly<Record<Outcome, readonly [text: string, colour: Colour]>> = {
  arrives: [
    "arrives, and so does the reply: rules were simulated, routes and sockets are the kernel's",
    'green',
  ],
  stopped: ['stopped', 'red'],
  unknown: ['unknown: no hop stops it for certain', 'yellow'],
};

/** Where the evidence of a hop begins. */
const INDENT = ' '.repeat(15);

/**
 * A line for each hop, with the command that mends it. Evidence is wrapped at the terminal's width, commands never: they are there
 * to be copied.
 */
export function renderWalk(
  hops: readonly Hop[],
  outcome: Outcome,
  { width, ...style }: Style & { readonly width: number | undefined },
): string {
  const paint = painter(style);
  const lines = hops.flatMap(({ name, at, state, evidence, mend }) => {
    const [mark, colour] = MARKS[state];
    const [first = '', ...more] = wrap(
      oneLine(`${name.padEnd(11)}  ${at}: ${evidence}`),
      (width ?? Infinity) - 2,
      '',
      INDENT,
    );
    const isBad = state === 'stops';
    return [
      `${paint(colour, mark)} ${isBad ? paint('bold', first) : first}`,
      ...more,
      ...(mend === undefined ? [] : [`  mend: ${oneLine(mend)}`]),
    ];
  });
  const [ending, colour] = ENDINGS[outcome];
  return [...lines, paint(colour, ending), ''].join('\n');
}
