// What kind of word does a command line expect at a place?
import type { Command, CommandOption } from '../command.ts';
import { COMMANDS } from '../commands.ts';

/** `known`: the words of a fixed list. `none`: only the user knows it. */
export type Kind =
  | { readonly kind: 'known'; readonly words: readonly string[] }
  | { readonly kind: 'files' | 'dirs' | 'none' }
  | { readonly kind: Dynamic };

/** What this node has by that name. */
export type Dynamic =
  | 'networks'
  | 'attached-networks'
  | 'containers'
  | 'namespaces'
  | 'plugins'
  | 'packet-ends';

/** By the placeholder of an argument or an option, without its brackets. */
const BY_PLACEHOLDER: Readonly<Record<string, Kind | undefined>> = {
  network: { kind: 'networks' },
  'network or interface': { kind: 'attached-networks' },
  netns: { kind: 'namespaces' },
  container: { kind: 'containers' },
  'id or pod': { kind: 'containers' },
  'address, mac, port, device, handle, name or id': { kind: 'containers' },
  'outside, node, address or container': { kind: 'packet-ends' },
  ':port, container:port or address:port, with /udp': { kind: 'packet-ends' },
  type: { kind: 'plugins' },
  'type or kind': { kind: 'plugins' },
  'type or index': { kind: 'plugins' },
  conflist: { kind: 'files' },
  'conflist or network': { kind: 'networks' },
  'file, directory or network': { kind: 'networks' },
  'dir or executable': { kind: 'files' },
  executable: { kind: 'files' },
  file: { kind: 'files' },
  dir: { kind: 'dirs' },
  'command or error code': { kind: 'known', words: COMMANDS.map(({ name }) => name) },
  'ls, why, free or pools': { kind: 'known', words: ['ls', 'why', 'free', 'pools'] },
};

/** Options whose placeholder only says that it is a name. */
const BY_OPTION: Readonly<Record<string, Kind | undefined>> = {
  network: { kind: 'networks' },
  'default-network': { kind: 'networks' },
};

const NONE: Kind = { kind: 'none' };

/** The value of an option. */
export function kindOfOption(name: string, { choices, placeholder = '' }: CommandOption): Kind {
  if (choices) return { kind: 'known', words: choices };
  return BY_OPTION[name] ?? BY_PLACEHOLDER[placeholder.slice(1, -1)] ?? NONE;
}

/** An argument. @param index from 0 */
export function kindOfArgument({ usage, positionals }: Command, index: number): Kind {
  if (index >= positionals.max) return NONE;
  const placeholder = Array.from(usage.matchAll(/<([^>]*)>/g), ([, text = '']) => text)[index] ?? '';
  return BY_PLACEHOLDER[placeholder] ?? NONE;
}
