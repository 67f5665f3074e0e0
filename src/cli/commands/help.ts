// What does `catena help` do, and what does an error code mean?
import { ADDRESS_TAKEN, ErrorCode } from '../../cni/errors.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, findCommand, UsageError } from '../command.ts';
import { SCRIPTS, type Shell } from '../completion/scripts.ts';
import { renderCommand, renderTop } from '../man/page.ts';
import { printAnswer } from '../output/print.ts';
import { widthOf, wrap } from '../terminal/lines.ts';
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
    const command =
      what === undefined ? undefined : findCommand(call.table, what, 'help with', ', and error codes');
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

type CodeExplanation = AnswerOf<'CodeExplanation'>;

/** From this code on, plugins define the meaning themselves (SPEC "Error"). */
const FIRST_FREE = 100;

const KNOWN: Readonly<Record<number, Omit<CodeExplanation, 'code'>>> = {
  [ErrorCode.unknown]: {
    meaning: 'The runner failed before or between its plugins.',
    causes: ['an executable is missing or cannot be started', 'a plugin printed something that is no JSON'],
    advice: ['read the message: it names the plugin', 'catena validate <conflist>'],
  },
  [ErrorCode.incompatibleVersion]: {
    meaning: 'The plugin, or the verb, does not support the "cniVersion" of the list.',
    causes: ['a list for a newer release of the plugin', 'CHECK of a list below 0.4.0'],
    advice: [
      'catena networks --versions <network> shows what each plugin supports',
      'choose a version that all of them have',
    ],
  },
  [ErrorCode.unsupportedField]: {
    meaning: 'The configuration has a key or value that the plugin does not support.',
    causes: ['an option of another release', 'an option that the kernel of this node lacks'],
    advice: [
      'catena validate <conflist> shows the place',
      'catena validate --schema <plugin> lists the options',
    ],
  },
  [ErrorCode.unknownContainer]: {
    meaning: 'The plugin does not know the container. A runtime need not call DEL.',
    causes: ['CHECK without an ADD, or after DEL', 'the records of the ADD are in another directory'],
    advice: [
      'catena ls shows what is recorded',
      'compare --cni-cache-dir and --state-dir with those of the ADD',
    ],
  },
  [ErrorCode.invalidEnvironment]: {
    meaning: 'A variable of the call (CNI_*) is missing or invalid, or the interface exists already.',
    causes: ['a second ADD without DEL', 'a container id or interface name with forbidden characters'],
    advice: ['run DEL, then ADD again', 'read the message: it names the variable'],
  },
  [ErrorCode.ioFailure]: {
    meaning: 'A file, socket or stream could not be read or written.',
    causes: ['a full disk', 'a directory that this user may not write', 'standard input that ended early'],
    advice: ['read the message: it names the file', 'catena doctor examines directories and space'],
  },
  [ErrorCode.decodingFailure]: {
    meaning: 'What was read is not the JSON that was expected.',
    causes: ['a syntax error in a list', 'a plugin that prints more than its result'],
    advice: [
      'catena validate <conflist> shows line and column',
      'catena conformance <plugin> tests what it prints',
    ],
  },
  [ErrorCode.invalidConfig]: {
    meaning: 'The configuration is valid JSON and cannot be used as it is.',
    causes: ['a missing or contradictory option', 'an address or device that does not fit this node'],
    advice: ['catena validate <conflist>', 'catena try <conflist> runs it in temporary namespaces'],
  },
  [ErrorCode.invalidNetns]: {
    meaning:
      "The path of the namespace is not a namespace, is the plugin's own, or has become another container's.",
    causes: ['the container has ended', 'a path of a process id that is used again'],
    advice: ['run DEL for this container', 'catena ls shows which namespaces exist'],
  },
  [ErrorCode.tryAgainLater]: {
    meaning: 'The call cannot be served at this moment; the same call may succeed later.',
    causes: ['no free address', 'another process works on the attachment', "the daemon's queue is full"],
    advice: ['catena ipam ls <network> shows who holds addresses', 'call again, as runtimes do'],
  },
  [ErrorCode.unavailable]: {
    meaning: 'STATUS: the plugin cannot serve ADD. Existing containers are not affected.',
    causes: ['a master that is missing or down', 'a full pool', 'a kernel without the needed kind of device'],
    advice: ['catena status <network> names the plugin', 'catena doctor'],
  },
  [ErrorCode.unavailableLimited]: {
    meaning: 'STATUS: the plugin cannot serve ADD, and existing containers may have limited connectivity.',
    causes: ['no daemon renews leases of dhcp', 'forwarding is off'],
    advice: ['catena status <network> names the plugin', 'catena doctor'],
  },
  [ADDRESS_TAKEN]: {
    meaning:
      'Of bridge, ptp, firewall and portmap: the address belongs to another attachment that still exists.',
    causes: [
      'two networks with overlapping ranges',
      'leases that were deleted while containers use the addresses',
    ],
    advice: ['catena who <address> shows who has it', 'catena validate <conf dir> finds overlapping ranges'],
  },
  [ErrorCode.internal]: {
    meaning:
      'A failure that the plugin did not classify, often an answer of the kernel; or what CHECK found.',
    causes: ['CHECK: a part of the attachment was removed or changed', 'the kernel refused a request'],
    advice: ['catena repair <network> restores what it can', 'CATENA_NETLINK_TRACE=1 prints the requests'],
  },
};

/** Explains a code; undefined for one that the specification reserves and does not define. */
export function explainCode(code: number): CodeExplanation | undefined {
  const known = KNOWN[code];
  if (known) return { code, ...known };
  if (code < FIRST_FREE) return undefined;
  return {
    code,
    meaning: `Defined by the plugin that answered it: codes from ${FIRST_FREE} on are free for plugins.`,
    causes: ['ours, 100: what was asked for is taken, such as a port of the host, or was refused by a rule'],
    advice: ["read the message, and the plugin's README"],
  };
}

/** @param width of the terminal, in columns */
function renderCode({ code, meaning, causes, advice }: CodeExplanation, width: number): string {
  return [
    ...wrap(`code ${code}: ${meaning}`, width),
    'usual causes',
    ...causes.flatMap(cause => wrap(`- ${cause}`, width, '  ')),
    'what to do',
    ...advice.flatMap(one => wrap(`- ${one}`, width, '  ')),
    '',
  ].join('\n');
}
