// Which names of this node may a word be?
import { readdirSync } from 'node:fs';
import { parsePluginDirs } from '../../chain/config/find-plugin.ts';
import { listNetworks } from '../../chain/config/load.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { defined } from '../../cni/defined.ts';
import { DEFAULT_BIN_DIR, DEFAULT_CONF_DIR, stateDir } from '../../cni/directories.ts';
import { readRecords } from '../../node/facts.ts';
import { namesOf, readStorageNames } from '../../node/names.ts';
import type { Dynamic } from './kinds.ts';
import type { Line } from './line.ts';

/** A word, and what helps to choose it. */
export interface Candidate {
  readonly word: string;
  readonly about: string;
}

/** What a completion is told apart from the words. */
export interface Place {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The types of our own plugins. */
  readonly types: readonly string[];
}

/** Where `ip netns` keeps names. */
const NAMESPACES = '/run/netns';

/** Reads files only: nothing is started, and no daemon is asked. What cannot be read is not there. */
export const ON_NODE: Readonly<Record<Dynamic, (line: Line, place: Place) => Candidate[]>> = {
  networks: ({ values }, { env }) => {
    const dir = values.get('conf-dir') || env.NETCONFPATH || DEFAULT_CONF_DIR;
    return listNetworks(dir).networks.map(({ list }) => ({
      word: list.name,
      about: list.plugins.map(({ type }) => type).join(', '),
    }));
  },
  'attached-networks': (line, place) => {
    const [given = ''] = line.positionals;
    return containers(line, place)
      .filter(({ id, name }) => id === given || name === given || id.startsWith(given))
      .map(({ network, ifname }) => ({ word: network, about: ifname }));
  },
  containers: offerContainers,
  'packet-ends': (line, place) => [
    { word: 'outside', about: 'another machine' },
    { word: 'node', about: 'a process of this node' },
    ...offerContainers(line, place),
  ],
  namespaces: () => readdirSync(NAMESPACES).map(word => ({ word, about: `${NAMESPACES}/${word}` })),
  plugins: ({ values }, { env, types }) => {
    const given = values.get('bin-dir');
    const dirs = given === undefined ? parsePluginDirs(env.CNI_PATH || DEFAULT_BIN_DIR) : [given];
    const found = dirs.flatMap(dir => namesIn(dir).map(word => ({ word, about: dir })));
    const others = found.filter(({ word }) => !types.includes(word) && !/[.]|^catena/.test(word));
    return [...types.map(word => ({ word, about: 'one of ours' })), ...others];
  },
};

function offerContainers(line: Line, place: Place): Candidate[] {
  const [network] = line.command?.name === 'set' ? line.positionals : [];
  const known = containers(line, place).filter(one => network === undefined || one.network === network);
  return [...new Set(known.map(({ id }) => id))].flatMap(id => {
    const attached = known.filter(one => one.id === id);
    const about = attached.map(one => one.network).join(', ');
    const name = attached.find(one => one.name !== undefined)?.name;
    // A name is what a user remembers; an id is offered to whom has begun to type it.
    const words = name === undefined ? [id] : line.word === '' ? [name] : [name, id];
    return words.map(word => ({ word, about }));
  });
}

function containers({ values }: Line, { env }: Place) {
  const runtime: ChainRuntime = {
    pluginDirs: [],
    env,
    stateDir: values.get('state-dir') || stateDir(env),
    ...defined({ cacheDir: values.get('cni-cache-dir') }),
  };
  const storage = readStorageNames();
  return readRecords(runtime).attachments.map(({ known: { containerId: id, network, ifname, args } }) => {
    const { podNamespace, podName, containerName } = namesOf(id, args, storage);
    const name = containerName ?? (podName === undefined ? undefined : `${podNamespace}/${podName}`);
    return { id, network, ifname, name };
  });
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}
