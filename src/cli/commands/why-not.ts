// What does `catena why-not` do?
import { peersIn } from '../../between/peers.ts';
import { keyOf } from '../../cni/attachment.ts';
import { runDir } from '../../cni/directories.ts';
import { type Colour, oneLine, painter, type Style } from '../../lab/paint.ts';
import { readRecords } from '../../node/facts.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { parseFrom, parseTo } from '../../packet/ends.ts';
import type { Hop, Outcome } from '../../packet/hop.ts';
import { whyNot } from '../../packet/why-not.ts';
import type { Advice } from '../../packet/world.ts';
import { findKnown } from '../../running/container.ts';
import type { WatchedAttachment } from '../../watch/attachments.ts';
import { commandsFor, mendFor, repairCommand } from '../../watch/examine.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { FAILURE, INCOMPLETE, SUCCESS } from '../exit-codes.ts';
import { readNodeFor } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';
import { runtimeOf } from '../target.ts';
import { styleOf, widthOf, wrap } from '../terminal/lines.ts';

const EXIT_CODES = { arrives: SUCCESS, stopped: FAILURE, unknown: INCOMPLETE } as const;

function adviceFor(call: CommandCall): Advice {
  let known: readonly WatchedAttachment[] | undefined;
  const find = ({ network, containerId, ifname }: NodeAttachment) => {
    known ??= readRecords(runtimeOf(call)).standing;
    return known.find(({ key }) => key === keyOf({ network, containerId, ifname }));
  };
  const remake = (attachment: NodeAttachment): string => {
    const one = find(attachment);
    return one ? commandsFor(one) : `recreate container "${attachment.containerId}"`;
  };
  return {
    repair: repairCommand,
    remake,
    restore(attachment, present) {
      const one = find(attachment);
      return one ? mendFor(one, present) : repairCommand(attachment);
    },
  };
}

/** Follows a packet and its reply. @returns 0 if both arrive, 1 if a hop stops them, 3 if that is not known */
export async function run(call: CommandCall): Promise<number> {
  const [toText = '', fromText] = call.positionals.toReversed();
  const node = await readNodeFor(call);
  const find = (given: string) => findKnown(given, call.cwd, runtimeOf(call)).containerId;
  const to = parseTo(toText, call.on('ipv6') ? 6 : 4, node, find);
  if (to === undefined)
    throw new UsageError(
      `Cannot use "${toText}": expected a port such as ":8080", "db:5432", "10.22.0.7:80" or "[fd00::7]:53/udp"`,
    );
  // A port of the node is for others, one of a container may be asked for from the node itself.
  const from = parseFrom(fromText ?? (to.kind === 'node' ? 'outside' : 'node'), node, find);
  const { outcome, hops } = whyNot(node, from, to, adviceFor(call), peersIn(runDir(call.env)));
  const start = fromText ?? from.kind;
  await printAnswer(
    call,
    'PacketWalk',
    { from: start, to: toText, outcome, simulated: true, hops },
    { text: () => renderWalk(hops, outcome, { ...styleOf(call), width: widthOf(call) }) },
  );
  return EXIT_CODES[outcome];
}

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
function renderWalk(
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
