// What does the tool do with its command line, and how does it report failure?
import { writeSync } from 'node:fs';
import { workingDirectory } from '../cni/directories.ts';
import { CniError, ErrorCode, invalidEnvironment } from '../cni/errors.ts';
import { fileFailure } from '../files/read-file.ts';
import { oneLine } from '../lab/words.ts';
import { inEnvelope } from './answers/envelope.ts';
import {
  type Command,
  type CommandCall,
  type CommandContext,
  findCommand,
  readCommandLine,
  TOOL_VERSION,
  UsageError,
} from './command.ts';
import { COMMANDS, GLOBAL_OPTIONS } from './commands.ts';
import { COMPLETE } from './completion/question.ts';
import { FAILURE, SUCCESS, WRONG_COMMAND_LINE } from './exit-codes.ts';
import { callByName, renderFailure, showable, toFailureJson } from './failure.ts';
import { asksForData, isData } from './output/format.ts';
import { foldText, widthOf } from './terminal/lines.ts';

/**
 * Runs a command line; the only function that catches errors. Results are written to standard output, everything else to standard
 * error.
 * @param args command line without the executable's name
 * @returns the exit code
 */
export async function runMain(args: readonly string[], surroundings: CommandContext): Promise<number> {
  try {
    return await dispatch(args, surroundings);
  } catch (thrown) {
    const { env = process.env } = surroundings;
    const write = writerOf(surroundings);
    const tell = (text: string) => write(2, foldText(text, widthOf({ env }, 2)));
    const error = nameCommand(thrown, args[0]);
    const usage = error instanceof UsageError;
    if (asksForData(args)) {
      const failure = usage ? invalidEnvironment(error.message) : error;
      write(2, `${JSON.stringify(toFailureJson(failure))}\n`);
    } else tell(usage ? `catena: ${error.message}\n` : renderFailure(error));
    return usage ? WRONG_COMMAND_LINE : FAILURE;
  }
}

/** Adds at least the command's name to an error of the file system that no part of the command has described. */
function nameCommand(thrown: unknown, command = ''): unknown {
  if (!(thrown instanceof Error) || thrown instanceof CniError) return thrown;
  const { code, syscall } = thrown as NodeJS.ErrnoException;
  return code === undefined || syscall === undefined
    ? thrown
    : fileFailure('run', `catena ${command}`, thrown);
}

async function dispatch(args: readonly string[], surroundings: CommandContext): Promise<number> {
  const [name, ...rest] = args;
  const show = (text: string): number => {
    writerOf(surroundings)(1, text);
    return SUCCESS;
  };
  const usage = async (command?: Command) => {
    const { renderCommandUsage, renderUsage } = await import('./usage.ts');
    const width = widthOf({ env: surroundings.env ?? process.env });
    return command ? renderCommandUsage(command, TABLE, width) : renderUsage(TABLE, width);
  };
  if (name === '--version' || name === '-v') return show(`catena ${TOOL_VERSION}\n`);
  if (name === undefined) {
    throw new UsageError(`Cannot run: no command given\n\n${(await usage()).trimEnd()}`);
  }
  if (name === '--help' || name === '-h') return show(await usage());
  if (name === COMPLETE) {
    const { answer } = await import('./completion/answer.ts');
    return show(answer(rest, { env: surroundings.env ?? process.env, types: surroundings.plugins.types }));
  }
  const command = findCommand(TABLE, name, 'run', '; see catena help');
  const typed = readCommandLine(command, rest, TABLE, surroundings.cwd);
  if (typed.on('help')) return show(await usage(command));
  const call = toCall(typed, surroundings);
  const { run } = await command.load(call);
  return run(call);
}

const TABLE = { commands: COMMANDS, globalOptions: GLOBAL_OPTIONS };

function toCall(typed: ReturnType<typeof readCommandLine>, surroundings: CommandContext): CommandCall {
  const { env = process.env, cwd = workingDirectory(), signal: given, write: _, ...shared } = surroundings;
  const write = writerOf(surroundings);
  let signal = given;
  let isUnread = false;
  const err = (text: string) => write(2, isData(typed) ? text : foldText(text, widthOf({ env }, 2)));
  return {
    ...shared,
    ...typed,
    env,
    cwd,
    table: TABLE,
    runCommand: runMain,
    // Lazy: only a command that uses it gives up that a signal ends the tool at once.
    get signal() {
      signal ??= onSignal();
      return signal;
    },
    out: text => {
      isUnread ||= write(1, text) === 'unread';
    },
    get isUnread() {
      return isUnread;
    },
    err,
    warn: ({ code, message }) =>
      err(
        isData(typed)
          ? `${JSON.stringify(inEnvelope('Warning', { code, message }))}\n`
          : `catena: warning: ${callByName(oneLine(message))}\n`,
      ),
  };
}

/** Much of the output comes from plugins and files, and must not be able to control the terminal. */
function writerOf({ write = writeOut }: CommandContext): NonNullable<CommandContext['write']> {
  return (fd, text) => write(fd, showable(text));
}

/** The first signal asks for an orderly end; the next one ends the tool at once. */
function onSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, () => controller.abort());
  return controller.signal;
}

/** A command prints when it is done. */
function unwritten(fd: 1 | 2, cause: Error): CniError {
  const where = fd === 1 ? 'standard output' : 'standard error';
  const text = `Cannot write to ${where}: ${cause.message}; what the command has done stands`;
  return new CniError(ErrorCode.ioFailure, text, { cause });
}

/** Writes to the descriptor, not to the process's stream: the streams cost 9 ms. */
function writeOut(fd: 1 | 2, text: string): 'unread' | undefined {
  let rest = Buffer.from(text);
  while (rest.length) {
    try {
      rest = rest.subarray(writeSync(fd, rest));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // The reader has closed its end.
      if (code === 'EPIPE') return 'unread';
      if (code !== 'EAGAIN') throw unwritten(fd, error as Error);
    }
  }
  return undefined;
}
