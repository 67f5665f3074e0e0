// What does `catena graph` do?
import { drawDot } from '../../graph/dot.ts';
import { drawMermaid } from '../../graph/mermaid.ts';
import { drawSvg } from '../../graph/svg.ts';
import { drawText } from '../../graph/text.ts';
import type { NodeModel } from '../../node/model.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { selectAttachments } from '../node/filter.ts';
import { printJson } from '../node/output.ts';
import { readNodeFor } from '../node/read.ts';

const DRAWINGS: Readonly<Record<string, (node: NodeModel) => string>> = {
  text: drawText,
  svg: drawSvg,
  mermaid: drawMermaid,
  dot: drawDot,
};

/** Draws the node: bridges, devices and what is attached to them. */
export async function run(call: CommandCall): Promise<number> {
  const output = call.text('output') ?? 'text';
  const draw = Object.hasOwn(DRAWINGS, output) ? DRAWINGS[output] : undefined;
  if (draw === undefined) {
    throw new UsageError(`Cannot use --output "${output}": expected ${Object.keys(DRAWINGS).join(', ')}`);
  }
  const node = await readNodeFor(call, call.on('check'));
  const network = call.text('network');
  const selected = selectAttachments(node.attachments, network === undefined ? [] : [`network=${network}`]);
  // A runtime's loopback attachment has nothing to show.
  const shown = { ...node, attachments: selected.filter(({ ifname }) => ifname !== 'lo') };
  if (call.on('json')) await printJson(call, shown);
  else call.out(draw(shown));
  return 0;
}
