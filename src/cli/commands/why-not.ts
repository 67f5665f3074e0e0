// What does `catena why-not` do?
import type { Hop } from '../../node/why-not.ts';
import { whyNot } from '../../node/why-not.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { printJson } from '../node/output.ts';
import { readNodeFor } from '../node/read.ts';

const MARKS = { passes: '✓', stops: '✗', unknown: '?' } as const;

/** Names the first hop that stops a connection. @returns 1 if one stops it, 3 if that is not known */
export async function run(call: CommandCall): Promise<number> {
  const [text = ''] = call.positionals;
  const port = Number(/^:(\d{1,5})$/.exec(text)?.[1]);
  if (!(port > 0 && port < 65_536))
    throw new UsageError(`Cannot use "${text}": expected a TCP port of the host such as ":8080"`);
  const hops = whyNot(await readNodeFor(call), port);
  const isStopped = hops.at(-1)?.state === 'stops';
  const outcome = isStopped ? 'stopped' : 'unknown';
  if (call.on('json')) printJson(call, { from: 'outside', to: text, outcome, simulated: false, hops });
  else call.out(`${hops.map(render).join('')}${isStopped ? '' : 'unknown: no hop stops it for certain\n'}`);
  return isStopped ? 1 : 3;
}

function render({ name, state, evidence, mend }: Hop): string {
  return `${MARKS[state]} ${name.padEnd(11)}  ${evidence}\n${mend === undefined ? '' : `  mend: ${mend}\n`}`;
}
