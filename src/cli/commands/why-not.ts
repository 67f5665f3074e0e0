// What does `catena why-not` do?
import { peersIn } from '../../between/note.ts';
import { runDir } from '../../cni/directories.ts';
import { type Colour, painter } from '../../lab/words.ts';
import type { Hop, Outcome } from '../../node/packet/site.ts';
import { parseFrom, parseTo, whyNot } from '../../node/packet/why-not.ts';
import { leavesNode } from '../../node/words.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { FAILURE, INCOMPLETE, SUCCESS } from '../exit-codes.ts';
import { readNodeFor } from '../node/read.ts';
import { adviceFor, renderHops, type WalkStyle } from '../node/walk.ts';
import { printAnswer } from '../output/print.ts';
import { findKnown } from '../running/container.ts';
import { runtimeOf } from '../target.ts';
import { styleOf, widthOf } from '../terminal/lines.ts';

const EXIT_CODES = { arrives: SUCCESS, stopped: FAILURE, unknown: INCOMPLETE } as const;

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
  await printAnswer(call, 'PacketWalk', { from: start, to: toText, outcome, simulated: true, hops }, () =>
    renderWalk(hops, outcome, { ...styleOf(call), width: widthOf(call) }),
  );
  return EXIT_CODES[outcome];
}

const ENDINGS: Readonly<Record<Outcome, readonly [text: string, colour: Colour]>> = {
  arrives: [
    "arrives, and so does the reply: rules were simulated, routes and sockets are the kernel's",
    'green',
  ],
  stopped: ['stopped', 'red'],
  unknown: ['unknown: no hop stops it for certain', 'yellow'],
};

const BEYOND =
  "leaves the node, and a reply comes back; what is beyond it is not known: rules were simulated, routes are the kernel's";

function renderWalk(hops: readonly Hop[], outcome: Outcome, style: WalkStyle): string {
  const [end, colour] = ENDINGS[outcome];
  const ending = outcome === 'arrives' && leavesNode(hops) ? BEYOND : end;
  return [...renderHops(hops, style), painter(style)(colour, ending), ''].join('\n');
}
