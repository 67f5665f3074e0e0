// Which environment variables does a plugin receive, and are they valid?
import { findIfnameProblem } from '../net/ifname.ts';
import { CniError, ErrorCode } from './errors.ts';
import { isObject, type JsonObject, tryParse } from './json.ts';

/** The commands of the protocol. */
export const COMMANDS = ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS', 'VERSION'] as const;

/** One of {@link COMMANDS}. */
export type Command = (typeof COMMANDS)[number];

/**
 * Set to `1`, it asks CHECK to first restore what has been removed since ADD. A plugin that does not know the variable
 * only checks. No plugin can mistake it for anything else.
 */
export const REPAIR_VARIABLE = 'CATENA_REPAIR';

/**
 * Makes CHECK call a plugin's `upkeep` instead: `due`, or `restart` for the first call since the daemon started. Only the daemon
 * sets it.
 */
export const UPKEEP_VARIABLE = 'CATENA_UPKEEP';

/**
 * With one of {@link HANDOVER_MODES}, CHECK hands the attachment over to the reference plugin of the same name instead of
 * checking it, and prints what it found. A plugin that does not know the variable only checks.
 */
export const HANDOVER_VARIABLE = 'CATENA_HANDOVER';

/**
 * When a GC was requested, in milliseconds since the epoch. Set by a daemon for a plugin or a command that begins long after its caller
 * asked: the list of valid attachments is as old as the request.
 */
export const ASKED_VARIABLE = 'CATENA_ASKED';

/**
 * With one of {@link CHANGE_MODES}, CHECK changes the attachment into what the request configures instead of checking it, and
 * prints the new result. A plugin that does not know the variable only checks.
 */
export const CHANGE_VARIABLE = 'CATENA_CHANGE';

/** `look` reports what the reference's DEL would leave behind; `do` moves it to where that DEL finds it. */
const HANDOVER_MODES = ['look', 'do'] as const;

/** One of {@link HANDOVER_MODES}. */
export type HandoverMode = (typeof HANDOVER_MODES)[number];

/** `look` only examines whether the change is possible; `do` makes it. */
const CHANGE_MODES = ['look', 'do'] as const;

/** One of {@link CHANGE_MODES}. */
export type ChangeMode = (typeof CHANGE_MODES)[number];

/** The reply of a plugin that knows the variable. */
export interface ChangeReply {
  /** `prevResult` with what the change affects. */
  readonly changed: JsonObject;
  /** Names of the options of its configuration that may change. */
  readonly options: readonly string[];
}

/** Parses a plugin's reply; undefined when the plugin does not know the variable. */
export function parseChangeReply(stdout: string): ChangeReply | undefined {
  const { changed, options } = (tryParse(stdout) ?? {}) as Partial<ChangeReply>;
  return isObject(changed) && Array.isArray(options) ? { changed, options: options.map(String) } : undefined;
}

/** The mode of the change that the environment requests; undefined for an ordinary CHECK. */
export function changeModeOf(env: Readonly<Record<string, string | undefined>>): ChangeMode | undefined {
  if (env.CNI_COMMAND !== 'CHECK') return undefined;
  return CHANGE_MODES.find(mode => mode === env[CHANGE_VARIABLE]);
}

/** The reply of a plugin that knows the variable. */
export interface HandoverReply {
  readonly handedOver: readonly string[];
}

/** Parses a plugin's reply; undefined when the plugin does not know the variable. */
export function parseHandoverReply(stdout: string): readonly string[] | undefined {
  try {
    const { handedOver } = JSON.parse(stdout) as Partial<HandoverReply>;
    return Array.isArray(handedOver) ? handedOver.map(String) : undefined;
  } catch {
    return undefined;
  }
}

/** The handover mode requested by the environment; undefined for an ordinary CHECK. */
export function handoverModeOf(env: Readonly<Record<string, string | undefined>>): HandoverMode | undefined {
  if (env.CNI_COMMAND !== 'CHECK') return undefined;
  return HANDOVER_MODES.find(mode => mode === env[HANDOVER_VARIABLE]);
}

/** The environment of one invocation, validated for its command; variables that the command does not need may be empty. */
export interface CniEnv {
  readonly command: Command;
  readonly containerId: string;
  /** Path of the network namespace; empty when the runtime gave none (allowed on DEL). */
  readonly netns: string;
  readonly ifname: string;
  /** Raw `CNI_ARGS`; see cni-args.ts. */
  readonly args: string;
  /** Raw `CNI_PATH`: directories joined by ":". */
  readonly path: string;
  /** True when the caller allows the plugin's own namespace as target (`CNI_NETNS_OVERRIDE`). */
  readonly netnsOverride: boolean;
}

interface Variable {
  readonly name: string;
  readonly field: Exclude<keyof CniEnv, 'command' | 'netnsOverride'>;
  readonly requiredFor: readonly Command[];
  readonly findProblem?: (value: string) => string | undefined;
}

/**
 * The reference skeleton's table with one difference: the reference requires CNI_PATH. The specification calls it optional,
 * so we require it only when a delegate has to be found.
 */
const VARIABLES: readonly Variable[] = [
  {
    name: 'CNI_CONTAINERID',
    field: 'containerId',
    requiredFor: ['ADD', 'CHECK', 'DEL'],
    findProblem: findContainerIdProblem,
  },
  { name: 'CNI_NETNS', field: 'netns', requiredFor: ['ADD', 'CHECK'] },
  {
    name: 'CNI_IFNAME',
    field: 'ifname',
    requiredFor: ['ADD', 'CHECK', 'DEL'],
    findProblem: findIfnameProblem,
  },
  { name: 'CNI_ARGS', field: 'args', requiredFor: [] },
  { name: 'CNI_PATH', field: 'path', requiredFor: [] },
];

/**
 * Reads and validates the `CNI_*` variables. Reports all problems at once; the reference stops at the first invalid one.
 * @throws CniError 4
 */
export function parseEnv(env: Readonly<Record<string, string | undefined>>): CniEnv {
  const command = parseCommand(env.CNI_COMMAND);
  // A handover only concerns the host, and runtimes do not always record the namespace.
  const optional = handoverModeOf(env) === undefined ? [] : ['CNI_NETNS'];
  const missing = VARIABLES.filter(
    v => v.requiredFor.includes(command) && !env[v.name] && !optional.includes(v.name),
  ).map(v => v.name);
  const invalid = VARIABLES.flatMap(variable => {
    const value = env[variable.name];
    if (!value || !variable.requiredFor.includes(command)) return [];
    const problem = variable.findProblem?.(value);
    return problem ? [{ name: variable.name, value, problem }] : [];
  });
  if (missing.length || invalid.length) throw environmentError(missing, invalid);
  const fields = Object.fromEntries(VARIABLES.map(v => [v.field, env[v.name] ?? '']));
  const override = (env.CNI_NETNS_OVERRIDE ?? '').toLowerCase();
  return {
    ...(fields as unknown as Omit<CniEnv, 'command'>),
    command,
    netnsOverride: ['1', 'true'].includes(override),
  };
}

/** What is wrong with a container id (or a network name, same rule), or undefined. SPEC "Parameters". */
export function findContainerIdProblem(id: string): string | undefined {
  if (/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(id) && !id.endsWith('\n')) return undefined;
  return 'it must start with a letter or digit and contain only letters, digits, "_", "." and "-"';
}

/**
 * Validates the name of a network.
 * @throws CniError 7
 */
export function parseNetworkName(name: unknown): string {
  if (name === undefined || name === null || name === '') {
    throw new CniError(ErrorCode.invalidConfig, 'missing network name');
  }
  const problem = typeof name === 'string' ? findContainerIdProblem(name) : 'it must be a string';
  if (problem === undefined) return name as string;
  throw new CniError(ErrorCode.invalidConfig, `invalid characters found in network name: ${problem}`, {
    details: typeof name === 'string' ? name : JSON.stringify(name),
  });
}

function parseCommand(text: string | undefined): Command {
  if (!text) throw new CniError(ErrorCode.invalidEnvironment, 'required env variables [CNI_COMMAND] missing');
  if ((COMMANDS as readonly string[]).includes(text)) return text as Command;
  // Older runtimes match this exact text after asking for VERSION.
  throw new CniError(ErrorCode.invalidEnvironment, `unknown CNI_COMMAND: ${text}`);
}

function environmentError(
  missing: readonly string[],
  invalid: readonly { name: string; value: string; problem: string }[],
): CniError {
  const sentences = [
    ...(missing.length ? [`required env variables [${missing.join(',')}] missing`] : []),
    ...invalid.map(({ name, problem }) => `invalid ${name}: ${problem}`),
  ];
  return new CniError(ErrorCode.invalidEnvironment, sentences.join('; '), {
    details: invalid.map(({ name, value }) => `${name}=${JSON.stringify(value)}`).join(', '),
  });
}
