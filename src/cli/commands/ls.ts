// What does `catena ls` do?

import { setTimeout as pause } from 'node:timers/promises';
import { isatty } from 'node:tty';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { drawDot, drawMermaid } from '../../graph/edges.ts';
import { drawSvg } from '../../graph/svg.ts';
import { drawText } from '../../graph/text.ts';
import type { Style } from '../../lab/words.ts';
import type { NodeAttachment, NodeModel } from '../../node/model.ts';
import { withoutStandIns } from '../../node/shown.ts';
import { titleOf } from '../../node/words.ts';
import type { CommandCall } from '../command.ts';
import { selectAttachments } from '../node/filter.ts';
import { readNodeFor } from '../node/read.ts';
import { renderLs } from '../node/render-ls.ts';
import { printAnswer } from '../output/print.ts';
import { warn } from '../target.ts';
import { styleOf, widthOf } from '../terminal/lines.ts';
import { during } from '../terminal/progress.ts';

/** Bridges, devices and what is attached to them, by format. */
const DRAWINGS: Readonly<Record<string, (node: NodeModel, style: Style) => string>> = {
  tree: drawText,
  svg: drawSvg,
  mermaid: drawMermaid,
  dot: drawDot,
};

/** Milliseconds between two looks of `--watch`. */
const LOOK_AGAIN_MS = 2_000;

/** Lists the attachments of this node. With `--check`, fails if one is broken. */
export async function run(call: CommandCall): Promise<number> {
  if (call.on('watch')) return watch(call);
  const { node, shown } = await look(call);
  for (const note of node.notes) warn(call, new CniError(ErrorCode.unknown, note));
  await print(call, node, shown);
  return shown.some(({ health }) => health?.state === 'broken') ? 1 : 0;
}

async function look(call: CommandCall): Promise<{ node: NodeModel; shown: NodeAttachment[] }> {
  const node = call.on('check')
    ? await during(call, 'ls', 'CHECK of every attachment', () => readNodeFor(call, { health: true }))
    : await readNodeFor(call);
  const network = call.text('network');
  const filters = [...call.texts('filter'), ...(network === undefined ? [] : [`network=${network}`])];
  const selected = selectAttachments(node.attachments, filters);
  return { node, shown: call.on('all') ? selected : withoutStandIns(selected) };
}

async function print(call: CommandCall, node: NodeModel, shown: readonly NodeAttachment[]): Promise<void> {
  const render = (wide: boolean) => renderLs(node, shown, { ...styleOf(call), wide, width: widthOf(call) });
  const draw = DRAWINGS[call.format];
  const whole = { ...node, attachments: [...shown] };
  await printAnswer(call, 'Node', whole, {
    text: () => draw?.(whole, styleOf(call)) ?? render(false),
    wide: () => render(true),
    names: () => shown.map(titleOf),
  });
}

/** A terminal shows the present; elsewhere, what has changed is printed again. */
async function watch(call: CommandCall): Promise<number> {
  const clear = isatty(1) ? '\u001b[H\u001b[2J' : '';
  let before: string | undefined;
  while (!call.signal.aborted) {
    const { node, shown } = await look(call);
    const now = JSON.stringify(shown);
    if (clear !== '') process.stdout.write(clear);
    if (clear !== '' || now !== before) await print(call, node, shown);
    before = now;
    await pause(LOOK_AGAIN_MS, undefined, { signal: call.signal }).catch(() => undefined);
  }
  return 0;
}
