// Where are the leases of a network, and what is the evidence that they are in use?
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Conflist } from '../../chain/config/conflist.ts';
import { loadFile, loadNetwork } from '../../chain/config/load.ts';
import { listKnown } from '../../chain/records/known-attachments.ts';
import { cniCacheDir } from '../../cni/directories.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { leaseDirsOf, loadAbouts, typesOf } from '../../cni/network-plugins.ts';
import { findHolders } from '../../ipam/holders.ts';
import type { Witnesses } from '../../ipam/inspect.ts';
import { DEFAULT_DATA_DIR } from '../../ipam/lease-store.ts';
import type { CommandCall } from '../command.ts';
import { confDirOf } from '../target.ts';

/** Location of the leases of one network. */
export interface LeasePlace {
  readonly network: string;
  readonly dir: string;
}

/**
 * Where the network keeps its leases: in `--data-dir`, else where its conflist says, else in the default directory.
 * @throws CniError 7 if nothing was ever leased there
 */
export async function placeOf(call: CommandCall, network: string): Promise<LeasePlace> {
  const dataDir = call.text('data-dir');
  const configured = dataDir === undefined ? await findLeaseDir(call, network) : undefined;
  const dir = configured ?? join(dataDir ?? DEFAULT_DATA_DIR, network);
  if (existsSync(dir)) return { network, dir };
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot find leases of network "${network}": "${dir}" does not exist`,
  );
}

/** Every network with leases in `--data-dir` or in the default directory. */
export function listPlaces(call: CommandCall): LeasePlace[] {
  const dataDir = call.text('data-dir') ?? DEFAULT_DATA_DIR;
  if (!existsSync(dataDir)) return [];
  return readdirSync(dataDir)
    .sort()
    .map(network => ({ network, dir: join(dataDir, network) }))
    .filter(({ dir }) => statSync(dir).isDirectory());
}

/** Lists of attachments and interfaces, read once for all leases. */
export function findWitnesses(call: CommandCall, network: string): Witnesses {
  const cacheDir = call.text('cni-cache-dir') || cniCacheDir(call.env);
  const { attachments } = listKnown({ cacheDir, journals: [] }, network);
  return {
    findRecord: ({ containerId, ifname }) =>
      attachments
        .map(({ known }) => known)
        .find(one => one.containerId === containerId && (ifname === undefined || one.ifname === ifname)),
    holders: findHolders(),
  };
}

/** A network may have leases although its conflist is gone. */
function findList(call: CommandCall, network: string): Conflist | undefined {
  const file = call.text('file');
  if (file !== undefined) return loadFile(file);
  try {
    return loadNetwork(confDirOf(call), network);
  } catch {
    return undefined;
  }
}

async function findLeaseDir(call: CommandCall, network: string): Promise<string | undefined> {
  const list = findList(call, network);
  return list && leaseDirsOf(list, await loadAbouts(call.plugins.find, typesOf(list)))[0];
}
