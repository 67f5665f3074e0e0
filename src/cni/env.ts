// Which environment variables does a plugin get, and are they valid?
import { findIfnameProblem } from '../net/ifname.ts';
import { CniError, ErrorCode } from './errors.ts';

/** What a plugin may be asked to do. */
export const COMMANDS = ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS', 'VERSION'] as const;

/** One of the protocol's verbs. */
export type Command = (typeof COMMANDS)[number];

/**
 * Set to `1`, it asks CHECK to put back first what somebody has taken away behind the link's back. Who does not know it
 * checks and no more: no link can take it for something that it is not.
 */
export const REPAIR_VARIABLE = 'CATENA_REPAIR';

/** The environment of one invocation, validated for its command; what it does not need may be empty. */
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
 * The reference skeleton's table, with one difference: it demands CNI_PATH, which the specification calls optional,
 * so we do without until a delegate has to be found.
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
 * Reads and validates the `CNI_*` variables. All problems are reported at once, where the reference stops at the
 * first invalid one.
 * @throws CniError 4
 */
export function parseEnv(env: Readonly<Record<string, string | undefined>>): CniEnv {
  const command = parseCommand(env.CNI_COMMAND);
  const missing = VARIABLES.filter(v => v.requiredFor.includes(command) && !env[v.name]).map(v => v.name);
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
  return 'it must start with a letter or digit and hold only letters, digits, "_", "." and "-"';
}

/**
 * The name of a network, checked.
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
  // Older runtimes look for this very text after asking for VERSION.
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
