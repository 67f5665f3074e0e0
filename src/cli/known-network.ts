// Does a network that the user names exist, for commands that work on records?
import { listNetworks } from '../chain/config/load.ts';
import { NetworkNotFound } from '../chain/config/network-not-found.ts';
import { didYouMean } from '../cni/suggest.ts';
import type { CommandCall } from './command.ts';
import { confDirOf } from './target.ts';

/**
 * Called if nothing was found for the network, since that may mean that its name was mistyped.
 * @throws CniError 7 if no file configures it either
 */
export function checkConfigured(call: CommandCall, network: string): void {
  const dir = confDirOf(call);
  const names = listNetworks(dir).networks.map(({ list }) => list.name);
  if (names.includes(network)) return;
  const known = names.length
    ? `configured are ${names.map(name => JSON.stringify(name)).join(', ')}${didYouMean(network, names)}`
    : 'no network is configured';
  const where = `: it has no recorded attachment, and no file in "${dir}" configures it; ${known}`;
  throw new NetworkNotFound(network, where);
}
