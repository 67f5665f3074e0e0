// What may the word that is being typed become?
import { parsePluginDirs } from '../../chain/config/find-plugin.ts';
import { listNetworks } from '../../chain/config/load.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { DEFAULT_BIN_DIR, DEFAULT_CONF_DIR, stateDir } from '../../cni/directories.ts';
import { attempt } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { namesIn } from '../../files/read-file.ts';
import { readRecords } from '../../node/facts.ts';
import { namesOf, readStorageNames } from '../../node/names.ts';
import { type Command, type CommandOption, isOption, optionsOf, typedOption } from '../command.ts';
import { COMMANDS, GLOBAL_OPTIONS } from '../commands.ts';

/**
 * One line per word, with a tab and a description after it. The line `:files` or `:dirs` asks the shell for its own completion of
 * paths.
 */
export function answer(words: readonly string[], place: Surroundings): string {
  const line = readLine(words);
  const lines = offer(line, place).flatMap(one => {
    if (typeof one === 'string') return one;
    const { word, about } = one;
    const isMeant = word.startsWith(line.word) && (line.word !== '' || !word.startsWith('-'));
    return isMeant && !/[\s\p{Cc}]/u.test(word)
      ? `${line.prefix}${word}\t${about.replaceAll(/\s+/g, ' ')}`
      : [];
  });
  return [...new Set(lines)].map(text => `${text}\n`).join('');
}

/** Words, and after them whether files or directories may stand there. */
type Offer = readonly (Candidate | ':files' | ':dirs')[];

function offer(line: Line, place: Surroundings): Offer {
  const { command, pending, word, positionals, argumentsOnly } = line;
  const options = optionsFor(command);
  if (pending !== undefined) {
    const option = options[pending];
    return option?.type === 'string' ? ofKind(kindOfOption(pending, option), line, place) : [];
  }
  if (line.before.length === 0)
    return [...COMMANDS.map(({ name, summary }) => ({ word: name, about: summary })), ...OF_THE_TOOL];
  if (!argumentsOnly && word.startsWith('-')) {
    const open = Object.entries(options).filter(([name, { multiple }]) => multiple || !line.given.has(name));
    return open.map(([name, { help }]) => ({ word: `--${name}`, about: help }));
  }
  return command ? ofKind(kindOfArgument(command, positionals.length), line, place) : [];
}

/** What may stand in place of a command. */
const OF_THE_TOOL: readonly Candidate[] = [
  { word: '--help', about: 'show usage' },
  { word: '--version', about: "show the tool's version" },
];

function ofKind(kind: ValueKind | undefined, line: Line, place: Surroundings): Offer {
  if (kind === undefined) return [];
  if (typeof kind !== 'string') return kind.map(word => ({ word, about: '' }));
  if (kind === 'files' || kind === 'dirs') return [`:${kind}`];
  const alsoFiles = kind === 'lists' ? [':files' as const] : [];
  // A shell must not show an error in the middle of a command line.
  return [...(attempt(() => ON_NODE[kind](line, place)) ?? []), ...alsoFiles];
}

/** Words of a fixed list, paths, or what this node has by that name. */
type ValueKind = readonly string[] | 'files' | 'dirs' | Dynamic;

/** `lists` are networks as well as files. */
type Dynamic =
  | 'networks'
  | 'lists'
  | 'attached-networks'
  | 'containers'
  | 'namespaces'
  | 'plugins'
  | 'packet-ends';

/** By the placeholder of an argument or an option, without its brackets. */
const BY_PLACEHOLDER: Readonly<Record<string, ValueKind | undefined>> = {
  network: 'networks',
  'network or interface': 'attached-networks',
  netns: 'namespaces',
  container: 'containers',
  'id or pod': 'containers',
  'address, mac, port, device, handle, name or id': 'containers',
  'outside, node, address or container': 'packet-ends',
  ':port, container:port or address:port, with /udp': 'packet-ends',
  type: 'plugins',
  'type or kind': 'plugins',
  'type or index': 'plugins',
  conflist: 'files',
  'conflist or network': 'lists',
  'file, directory or network': 'lists',
  'dir or executable': 'files',
  executable: 'files',
  file: 'files',
  dir: 'dirs',
  'command or error code': COMMANDS.map(({ name }) => name),
  'ls, why, free or pools': ['ls', 'why', 'free', 'pools'],
};

/** Options whose placeholder only says that it is a name. */
const BY_OPTION: Readonly<Record<string, ValueKind | undefined>> = {
  network: 'networks',
  'default-network': 'networks',
};

/** The value of an option; undefined if only the user knows it. */
export function kindOfOption(
  name: string,
  { choices, placeholder = '' }: CommandOption,
): ValueKind | undefined {
  return choices ?? BY_OPTION[name] ?? BY_PLACEHOLDER[placeholder.slice(1, -1)];
}

/** An argument; undefined if only the user knows it. @param index from 0; the last one may be repeated */
export function kindOfArgument({ usage, positionals }: Command, index: number): ValueKind | undefined {
  if (index >= positionals.max) return undefined;
  const placeholders = Array.from(usage.matchAll(/<([^>]*)>/g), ([, text = '']) => text);
  const again = usage.endsWith('...') ? placeholders.at(-1) : undefined;
  return BY_PLACEHOLDER[placeholders[index] ?? again ?? ''];
}

/** A command line up to the cursor. */
interface Line {
  /** Undefined while the command itself is typed, or if there is no such command. */
  readonly command: Command | undefined;
  /** The words before the one that is typed. */
  readonly before: readonly string[];
  readonly positionals: readonly string[];
  /** Values of options, the last of each. */
  readonly values: ReadonlyMap<string, string>;
  /** Options that are there, with or without a value. */
  readonly given: ReadonlySet<string>;
  /** The option whose value is typed. */
  readonly pending: string | undefined;
  /** What the shell has before the value in the same word (`--network=`). */
  readonly prefix: string;
  /** The word up to the cursor, without the prefix. */
  readonly word: string;
  /** Whether `--` was typed: no more options. */
  readonly argumentsOnly: boolean;
}

/**
 * Reads the words after the tool's name; the last is the one that is typed, and may be empty.
 * Bash makes three words of `--network=web`, zsh and fish one.
 */
function readLine(words: readonly string[]): Line {
  const [name, ...rest] = words;
  const command = words.length > 1 ? COMMANDS.find(one => one.name === name) : undefined;
  const options = optionsFor(command);
  const values = new Map<string, string>();
  const given = new Set<string>();
  const positionals: string[] = [];
  let pending: string | undefined;
  let argumentsOnly = false;
  const typed = words.length > 1 ? (rest.at(-1) ?? '') : (name ?? '');
  for (const word of rest.slice(0, -1)) {
    if (pending !== undefined && word === '=') continue;
    if (pending !== undefined) {
      values.set(pending, word);
      pending = undefined;
    } else if (!argumentsOnly && word === '--') argumentsOnly = true;
    else if (!argumentsOnly && isOption(word)) {
      const { name: option = '', given: inOne } = typedOption(word, options);
      given.add(option);
      if (inOne[0] !== undefined) values.set(option, inOne[0]);
      else if (options[option]?.type === 'string') pending = option;
    } else positionals.push(word);
  }
  const line = { command, before: words.slice(0, -1), positionals, values, given, argumentsOnly };
  const [, inWord, value = ''] = /^--([^=]+)=(.*)$/s.exec(typed) ?? [];
  if (pending === undefined && !argumentsOnly && inWord !== undefined)
    return { ...line, pending: inWord, prefix: `--${inWord}=`, word: value };
  return { ...line, pending, prefix: '', word: pending !== undefined && typed === '=' ? '' : typed };
}

function optionsFor(command: Command | undefined): Readonly<Record<string, CommandOption>> {
  return optionsOf(command?.options ?? {}, { globalOptions: GLOBAL_OPTIONS });
}

interface Candidate {
  readonly word: string;
  readonly about: string;
}

/** What a completion is told apart from the words. */
interface Surroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The types of our own plugins. */
  readonly types: readonly string[];
}

/** Where `ip netns` keeps names. */
const NAMESPACES = '/run/netns';

/** Reads files only: nothing is started, and no daemon is asked. What cannot be read is not there. */
const ON_NODE: Readonly<Record<Dynamic, (line: Line, place: Surroundings) => Candidate[]>> = {
  networks: offerNetworks,
  lists: offerNetworks,
  'attached-networks': (line, place) => {
    const [given = ''] = line.positionals;
    const meant = containers(line, place).filter(({ id, name }) => id.startsWith(given) || name === given);
    return meant.map(({ network, ifname }) => ({ word: network, about: ifname }));
  },
  containers: offerContainers,
  'packet-ends': (line, place) => [
    { word: 'outside', about: 'another machine' },
    { word: 'node', about: 'a process of this node' },
    ...offerContainers(line, place),
  ],
  namespaces: () => namesIn(NAMESPACES).map(word => ({ word, about: `${NAMESPACES}/${word}` })),
  plugins: ({ values }, { env, types }) => {
    const given = values.get('bin-dir');
    const dirs = given === undefined ? parsePluginDirs(env.CNI_PATH || DEFAULT_BIN_DIR) : [given];
    const found = dirs.flatMap(dir => namesIn(dir).map(word => ({ word, about: dir })));
    const others = found.filter(({ word }) => !types.includes(word) && !/[.]|^catena/.test(word));
    return [...types.map(word => ({ word, about: 'one of ours' })), ...others];
  },
};

function offerNetworks({ values }: Line, { env }: Surroundings): Candidate[] {
  const dir = values.get('conf-dir') || env.NETCONFPATH || DEFAULT_CONF_DIR;
  return listNetworks(dir).networks.map(({ list }) => ({
    word: list.name,
    about: list.plugins.map(({ type }) => type).join(', '),
  }));
}

function offerContainers(line: Line, place: Surroundings): Candidate[] {
  const known = containers(line, place);
  return [...new Set(known.map(({ id }) => id))].flatMap(id => {
    const attached = known.filter(one => one.id === id);
    const about = attached.map(one => one.network).join(', ');
    const name = attached.find(one => one.name !== undefined)?.name;
    // A name is what a user remembers; an id is offered to whom has begun to type it.
    const words = name === undefined ? [id] : line.word === '' ? [name] : [name, id];
    return words.map(word => ({ word, about }));
  });
}

function containers({ values }: Line, { env }: Surroundings) {
  const runtime: ChainRuntime = {
    pluginDirs: [],
    env,
    stateDir: values.get('state-dir') || stateDir(env),
    ...defined({ cacheDir: values.get('cni-cache-dir') }),
  };
  const storage = readStorageNames();
  return readRecords(runtime).attachments.map(one => {
    const { containerId: id, network, ifname } = one;
    const { podNamespace, podName, containerName } = namesOf(one, storage);
    const name = containerName ?? (podName === undefined ? undefined : `${podNamespace}/${podName}`);
    return { id, network, ifname, name };
  });
}
