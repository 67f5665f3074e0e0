// What does the tool do with its command line, and how does it report failure?
import { writeSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type Command, type CommandCall, type Surroundings, UsageError } from './command.ts';
import { COMMANDS, GLOBAL_OPTIONS } from './commands.ts';
import { renderFailure, toFailureJson } from './failure.ts';
import { showable } from './showable.ts';
import { TOOL_VERSION } from './tool-version.ts';
import { renderCommandUsage, renderUsage } from './usage.ts';

/** Exit codes of the tool. */
const ExitCode = { success: 0, failure: 1, usage: 2 } as const;

/**
 * Runs a command line; the only place that catches. Results go to standard output, everything else to standard error.
 * @param args without the executable's name
 * @returns the exit code
 */
export async function runMain(args: readonly string[], surroundings: Surroundings): Promise<number> {
  try {
    return await dispatch(args, surroundings);
  } catch (error) {
    const write = writerOf(surroundings);
    const usage = error instanceof UsageError;
    if (args.includes('--json')) {
      const failure = usage ? new CniError(ErrorCode.invalidEnvironment, error.message) : error;
      write(2, `${JSON.stringify(toFailureJson(failure))}\n`);
    } else if (usage) write(2, `catena: ${error.message}\n`);
    else write(2, renderFailure(error));
    return usage ? ExitCode.usage : ExitCode.failure;
  }
}

async function dispatch(args: readonly string[], surroundings: Surroundings): Promise<number> {
  const [name, ...rest] = args;
  const show = (text: string): number => {
    writerOf(surroundings)(1, text);
    return ExitCode.success;
  };
  if (name === '--version' || name === '-v') return show(`catena ${TOOL_VERSION}\n`);
  if (name === undefined)
    throw new UsageError(`Cannot run: no command is given\n\n${renderUsage().trimEnd()}`);
  if (name === '--help' || name === '-h') return show(renderUsage());
  if (name === 'help') return show(rest[0] === undefined ? renderUsage() : renderCommandUsage(find(rest[0])));
  const command = find(name);
  const { values, positionals } = parse(command, rest);
  if (values.help === true) return show(renderCommandUsage(command));
  const { min, max } = command.positionals;
  if (positionals.length < min || positionals.length > max) {
    throw new UsageError(
      `Cannot run "${name}" with ${positionals.length} argument${positionals.length === 1 ? '' : 's'}: it takes ${command.usage}; see catena help ${name}`,
    );
  }
  const { run } = await command.load();
  return run(toCall(command, values, positionals, surroundings));
}

type Values = Readonly<Record<string, string | boolean | (string | boolean)[] | undefined>>;

function parse(command: Command, args: readonly string[]): { values: Values; positionals: string[] } {
  const options = Object.fromEntries(
    Object.entries({ ...command.options, ...GLOBAL_OPTIONS }).map(([name, { type, multiple = false }]) => {
      return [name, { type, multiple, ...(name === 'help' ? { short: 'h' } : {}) }];
    }),
  );
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (cause) {
    const { message } = cause as Error;
    throw new UsageError(`${message.split('. ')[0]}; see catena help ${command.name}`, { cause });
  }
}

function find(name: string): Command {
  const command = COMMANDS.find(one => one.name === name);
  if (command) return command;
  throw new UsageError(
    `Cannot run "${name}": it is not a command; there are ${COMMANDS.map(one => one.name).join(', ')}`,
  );
}

function toCall(
  command: Command,
  values: Values,
  positionals: readonly string[],
  surroundings: Surroundings,
): CommandCall {
  const { env = process.env, links, cwd, workers, asPlugin, request } = surroundings;
  const write = writerOf(surroundings);
  const { watcher, queueMs, deadlines } = surroundings;
  let signal = surroundings.signal;
  const place = (option: string, text: string): string => {
    const { placeholder = '' } = command.options[option] ?? {};
    return cwd !== undefined && PATHS.includes(placeholder) ? resolve(cwd, text) : text;
  };
  return {
    positionals,
    text(option) {
      const value = values[option];
      return typeof value === 'string' ? place(option, value) : undefined;
    },
    texts(option) {
      const value = values[option];
      const texts = Array.isArray(value) ? value.filter(one => typeof one === 'string') : [];
      return texts.map(text => place(option, text));
    },
    on: option => values[option] === true,
    env,
    links,
    cwd: cwd ?? process.cwd(),
    runCommand: runMain,
    workers,
    watcher,
    queueMs,
    deadlines,
    asPlugin,
    request,
    // Only who asks for it gives up that a signal ends the tool at once.
    get signal() {
      signal ??= onSignal();
      return signal;
    },
    out: text => write(1, text),
    err: text => write(2, text),
  };
}

/** Much of what is told comes from plugins and files: a terminal must not be led by it. */
function writerOf({ write = writeOut }: Surroundings): typeof writeOut {
  return (fd, text) => write(fd, showable(text));
}

/** What stands for a path in the usage text. */
const PATHS: readonly string[] = ['<dir>', '<file>', '<conflist>'];

/** The first signal asks for an orderly end, the next one is the end. */
function onSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(name, () => controller.abort());
  return controller.signal;
}

/** The descriptor, not the process's stream: the streams cost 9 ms. */
function writeOut(fd: 1 | 2, text: string): void {
  let rest = Buffer.from(text);
  while (rest.length) {
    try {
      rest = rest.subarray(writeSync(fd, rest));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // Nobody reads any more.
      if (code === 'EPIPE') return;
      if (code !== 'EAGAIN') throw error;
    }
  }
}
