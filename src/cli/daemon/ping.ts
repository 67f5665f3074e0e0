// What does `catena daemon --ping` do?

import { runDir } from '../../cni/directories.ts';
import { describePing } from '../../daemon/protocol.ts';
import { type Ping, ping } from '../../daemon/who-listens.ts';
import { absolutePath } from '../../files/read-file.ts';
import { inEnvelope } from '../answers/envelope.ts';
import { type CommandCall, secondsIn } from '../command.ts';
import { DAEMON_EXIT_CODES } from '../exit-codes.ts';
import { printData } from '../output/data.ts';
import { isData } from '../output/format.ts';
import { TOOL_VERSION } from '../tool-version.ts';

const DEADLINE_S = 2;

/** Prints one line about the daemon, for probes; the exit code says the same. */
export async function run(call: CommandCall): Promise<number> {
  const text = call.text('deadline') ?? String(DEADLINE_S);
  const seconds = secondsIn(text, `--deadline "${text}"`, { most: 3_600 });
  const dir = absolutePath(call.text('run-dir') ?? runDir(call.env), call.cwd);
  const found = await ping(dir, seconds * 1_000);
  if (isData(call)) await printData(call, inEnvelope('Ping', found));
  else if (found.state === 'alive') call.out(`${describePing(found.reply)}\n`);
  else call.err(`catena: ${problemOf(found, dir, seconds)}\n`);
  return DAEMON_EXIT_CODES[found.state];
}

function problemOf(found: Exclude<Ping, { state: 'alive' }>, dir: string, seconds: number): string {
  if (found.state === 'absent') return `no daemon listens in "${dir}"`;
  if (found.state === 'silent') return `the daemon in "${dir}" did not answer within ${seconds} s`;
  const whose = 'reply' in found && found.reply ? describePing(found.reply) : 'a daemon';
  return `the daemon in "${dir}" is another build than this command, ${TOOL_VERSION}: ${whose}`;
}
