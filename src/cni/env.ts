// Which environment variables does a plugin receive, CNI_ARGS among them, and are they valid?

import { findIfnameProblem } from '../net/interface.ts';
import { findContainerIdProblem } from './attachment.ts';
import { attempt, type CniError, invalidConfig, invalidEnvironment } from './errors.ts';

export const COMMANDS = ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS', 'VERSION'] as const;

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
 * With a {@link HandoverMode}, CHECK hands the attachment over to the reference plugin of the same name instead of
 * checking it, and prints what it found. A plugin that does not know the variable only checks.
 */
export const HANDOVER_VARIABLE = 'CATENA_HANDOVER';

/**
 * When a GC was requested, in milliseconds since the epoch. Set by a daemon for a plugin or a command that begins long after its caller
 * asked: the list of valid attachments is as old as the request.
 */
export const ASKED_VARIABLE = 'CATENA_ASKED';

/**
 * With a {@link ChangeMode}, CHECK changes the attachment into what the request configures instead of checking it, and
 * prints the new result. A plugin that does not know the variable only checks.
 */
export const CHANGE_VARIABLE = 'CATENA_CHANGE';

/** Names the file of a snapshot to plugins, so that all of them collect garbage as of the same moment. */
export const SNAPSHOT_VARIABLE = 'CATENA_GC_SNAPSHOT';

const MODES = ['look', 'do'] as const;

/** `look` reports what the reference's DEL would leave behind; `do` moves it to where that DEL finds it. */
export type HandoverMode = (typeof MODES)[number];

/** `look` only examines whether the change is possible; `do` makes it. */
export type ChangeMode = (typeof MODES)[number];

/** The mode that the environment requests by one of the two variables; undefined for an ordinary CHECK. */
export function modeOf(
  env: Readonly<Record<string, string | undefined>>,
  variable: typeof HANDOVER_VARIABLE | typeof CHANGE_VARIABLE,
): HandoverMode | ChangeMode | undefined {
  return env.CNI_COMMAND === 'CHECK' ? MODES.find(mode => mode === env[variable]) : undefined;
}

/** The environment of one invocation, validated for its command; variables that the command does not need may be empty. */
export interface CniEnv {
  readonly command: Command;
  readonly containerId: string;
  /** Path of the network namespace; empty when the runtime gave none (allowed on DEL). */
  readonly netns: string;
  readonly ifname: string;
  /** Raw `CNI_ARGS`; see {@link parseCniArgs}. */
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

const OF_ONE: readonly Command[] = ['ADD', 'CHECK', 'DEL'];

/**
 * The reference skeleton's table with one difference: the reference requires CNI_PATH. The specification calls it optional,
 * so we require it only when a delegate has to be found.
 */
const VARIABLES: readonly Variable[] = [
  { name: 'CNI_CONTAINERID', field: 'containerId', requiredFor: OF_ONE, findProblem: findContainerIdProblem },
  { name: 'CNI_NETNS', field: 'netns', requiredFor: ['ADD', 'CHECK'] },
  { name: 'CNI_IFNAME', field: 'ifname', requiredFor: OF_ONE, findProblem: findIfnameProblem },
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
  const optional = modeOf(env, HANDOVER_VARIABLE) === undefined ? [] : ['CNI_NETNS'];
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

/**
 * Validates the name of a network.
 * @throws CniError 7
 */
export function parseNetworkName(name: unknown): string {
  if (name === undefined || name === null || name === '') {
    throw invalidConfig('missing network name');
  }
  const problem = typeof name === 'string' ? findContainerIdProblem(name) : 'it must be a string';
  if (problem === undefined) return name as string;
  throw invalidConfig(`invalid characters found in network name: ${problem}`, {
    details: typeof name === 'string' ? name : JSON.stringify(name),
  });
}

function parseCommand(text: string | undefined): Command {
  if (!text) throw invalidEnvironment('required env variables [CNI_COMMAND] missing');
  if ((COMMANDS as readonly string[]).includes(text)) return text as Command;
  // Older runtimes match this exact text after asking for VERSION.
  throw invalidEnvironment(`unknown CNI_COMMAND: ${text}`);
}

function environmentError(
  missing: readonly string[],
  invalid: readonly { name: string; value: string; problem: string }[],
): CniError {
  const sentences = [
    ...(missing.length ? [`required env variables [${missing.join(',')}] missing`] : []),
    ...invalid.map(({ name, problem }) => `invalid ${name}: ${problem}`),
  ];
  return invalidEnvironment(sentences.join('; '), {
    details: invalid.map(({ name, value }) => `${name}=${JSON.stringify(value)}`).join(', '),
  });
}

/** Key-value pairs of `CNI_ARGS`, in order. */
export type CniArgs = readonly (readonly [key: string, value: string])[];

/**
 * Splits `K=V;K2=V2`. Every element needs exactly one "=", as in the reference.
 * @throws CniError 4 naming the element
 */
export function parseCniArgs(text: string): CniArgs {
  if (text === '') return [];
  return text.split(';').map(element => {
    const [key, value, ...more] = element.split('=');
    if (key === undefined || value === undefined || more.length) {
      throw invalidEnvironment(
        `Cannot read CNI_ARGS: invalid pair ${JSON.stringify(element)}, expected KEY=VALUE`,
        { details: text },
      );
    }
    return [key, value] as const;
  });
}

/** Like {@link parseCniArgs} for callers that only report the arguments: returns an empty list for malformed text. */
export function findCniArgs(text: string): CniArgs {
  return attempt(() => parseCniArgs(text)) ?? [];
}

/** Why a pair cannot be written to `CNI_ARGS` (it would be read back as another pair, or as several), or undefined. */
export function findPairProblem(key: string, value: string): string | undefined {
  const isWhole = key !== '' && !/[;=\0]/.test(key) && !/[;\0]/.test(value);
  return isWhole ? undefined : 'key and value must not contain ";", and the key no "="';
}

/** `K=V;K2=V2` for the environment of a plugin. */
export function renderCniArgs(args: CniArgs): string {
  return args.map(([key, value]) => `${key}=${value}`).join(';');
}

/**
 * Picks the arguments that a plugin knows, by name; the last of a repeated argument wins. Unknown arguments are an error
 * unless `IgnoreUnknown` is set, at any position.
 * @throws CniError 4 listing the unknown ones
 */
export function pickCniArgs<K extends string>(
  args: CniArgs,
  known: readonly K[],
): Partial<Record<K, string>> {
  const picked: Partial<Record<K, string>> = {};
  const unknown: string[] = [];
  let ignoreUnknown = false;
  for (const [key, value] of args) {
    if (key === 'IgnoreUnknown') ignoreUnknown = parseBoolean(value);
    else if ((known as readonly string[]).includes(key)) picked[key as K] = value;
    else unknown.push(`${key}=${value}`);
  }
  if (unknown.length && !ignoreUnknown) {
    throw invalidEnvironment(
      `Cannot use CNI_ARGS: unknown args ${JSON.stringify(unknown)}; set IgnoreUnknown=1 to ignore them`,
    );
  }
  return picked;
}

function parseBoolean(value: string): boolean {
  const word = value.toLowerCase();
  if (word === '1' || word === 'true') return true;
  if (word === '0' || word === 'false') return false;
  throw invalidEnvironment(
    `Cannot read CNI_ARGS: IgnoreUnknown must be 1, true, 0 or false, found ${JSON.stringify(value)}`,
  );
}

/** The member of `args.cni` in which the delegate runner names the IPAMClaim: `namespace`, `name`, `uid`. */
export const CLAIM_ARG = 'catena.cni.cncf.io/claim';

export function argOf({ args }: { readonly args: CniArgs }, key: string): string | undefined {
  return args.findLast(([name]) => name === key)?.[1];
}

/** Namespace and name of the Kubernetes pod that the arguments are of; undefined for any other container. */
export function podNamedIn(of: { readonly args: CniArgs }): { namespace: string; name: string } | undefined {
  const [namespace, name] = [argOf(of, 'K8S_POD_NAMESPACE'), argOf(of, 'K8S_POD_NAME')];
  return namespace && name ? { namespace, name } : undefined;
}
