// What does `catena help` do?
import { didYouMean } from '../../cni/json.ts';
import { type Command, type CommandCall, UsageError } from '../command.ts';
import { SCRIPTS, type Shell } from '../completion/scripts.ts';
import { explainCode, renderCode } from '../explain.ts';
import { renderCommand, renderTop } from '../man/page.ts';
import { printAnswer } from '../output/print.ts';
import { widthOf } from '../terminal/lines.ts';
import { renderCommandUsage, renderUsage } from '../usage.ts';

/** Where the output is no terminal. */
const WIDTH = 80;

/** Prints usage, an error code's meaning, a page of the manual, or what a shell reads. */
export async function run(call: CommandCall): Promise<number> {
  const [what] = call.positionals;
  const shell = call.text('completion');
  if (shell !== undefined) call.out(SCRIPTS[shell as Shell]);
  else if (what !== undefined && /^\d+$/.test(what)) await explain(call, Number(what));
  else {
    const command = what === undefined ? undefined : find(call, what);
    const width = widthOf(call);
    if (call.on('man')) call.out(command ? renderCommand(command, call.table) : renderTop(call.table));
    else call.out(command ? renderCommandUsage(command, call.table, width) : renderUsage(call.table, width));
  }
  return 0;
}

async function explain(call: CommandCall, code: number): Promise<void> {
  const explanation = explainCode(code);
  if (explanation === undefined) {
    throw new UsageError(
      `Cannot explain code ${code}: the specification reserves the codes below 100 and does not define this one`,
    );
  }
  await printAnswer(call, 'CodeExplanation', explanation, () =>
    renderCode(explanation, widthOf(call) ?? WIDTH),
  );
}

function find({ table }: CommandCall, name: string): Command {
  const command = table.commands.find(one => one.name === name);
  if (command) return command;
  const names = table.commands.map(one => one.name);
  const near = didYouMean(name, names) || `; there are ${names.join(', ')}, and error codes`;
  throw new UsageError(`Cannot help with "${name}": no such command${near}`);
}
