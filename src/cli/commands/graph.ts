// What does `catena graph` do?
import { drawDot } from '../../graph/dot.ts';
import { drawMermaid } from '../../graph/mermaid.ts';
import { drawSvg } from '../../graph/svg.ts';
import { drawText } from '../../graph/text.ts';
import type { Style } from '../../lab/paint.ts';
import type { NodeModel } from '../../node/model.ts';
import { withoutStandIns } from '../../node/shown.ts';
import type { CommandCall } from '../command.ts';
import { selectAttachments } from '../node/filter.ts';
import { readNodeFor } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';
import { styleOf } from '../terminal/colour.ts';

const DRAWINGS: Readonly<Record<string, (node: NodeModel, style: Style) => string>> = {
  text: drawText,
  svg: drawSvg,
  mermaid: drawMermaid,
  dot: drawDot,
};

/** Draws the node: bridges, devices and what is attached to them. */
export async function run(call: CommandCall): Promise<number> {
  const node = await readNodeFor(call, call.on('check'));
  const network = call.text('network');
  const selected = selectAttachments(node.attachments, network === undefined ? [] : [`network=${network}`]);
  // A runtime's loopback attachment has nothing to show.
  const shown = { ...node, attachments: withoutStandIns(selected) };
  const draw = DRAWINGS[call.format] ?? drawText;
  await printAnswer(call, 'Node', shown, { text: () => draw(shown, styleOf(call)) });
  return 0;
}
