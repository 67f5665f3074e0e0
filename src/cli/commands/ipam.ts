// What does `catena ipam` do?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { type InspectedLease, inspectLease } from '../../ipam/inspect.ts';
import { listLeases } from '../../ipam/lease-files.ts';
import { withStore } from '../../ipam/lease-store.ts';
import { findIp, parseIp, renderIp } from '../../net/ip.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { findWitnesses, type LeasePlace, listPlaces, placeOf } from '../ipam/place.ts';
import { findPools } from '../ipam/pools.ts';
import { renderLeases, renderPools, renderReason, toJson } from '../ipam/render.ts';
import { printAnswer } from '../output/print.ts';

type Operands = readonly string[];

const ACTIONS: Readonly<Record<string, (call: CommandCall, operands: Operands) => Promise<number>>> = {
  ls,
  why,
  free,
  pools,
};

/** Lists leases, explains why one is held, or frees one; or lists pools. */
export async function run(call: CommandCall): Promise<number> {
  const [name = '', ...operands] = call.positionals;
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (action === undefined)
    throw new UsageError(`Cannot run "ipam ${name}": there are ls, why, free and pools`);
  const isOfAll = action === ls || action === pools;
  const wanted = isOfAll ? [0, 1] : [2];
  if (!wanted.includes(operands.length)) {
    throw new UsageError(
      `Cannot run "ipam ${name}" with ${operands.length} more arguments: it takes ${isOfAll ? '[<network>]' : '<network> <address>'}`,
    );
  }
  return action(call, operands);
}

async function ls(call: CommandCall, [network]: Operands): Promise<number> {
  const places = network === undefined ? listPlaces(call) : [await placeOf(call, network)];
  const leases = places.flatMap(place => inspectAll(call, place));
  await printAnswer(
    call,
    'LeaseList',
    { items: leases.map(toJson) },
    {
      text: () => renderLeases(leases),
      wide: () => renderLeases(leases, true),
      names: () => leases.map(({ address }) => address),
    },
  );
  return 0;
}

/** What the store of the cluster says, not this node. */
async function pools(call: CommandCall, [network]: Operands): Promise<number> {
  const items = await findPools(call, network);
  await printAnswer(
    call,
    'ClusterPoolList',
    { items },
    {
      text: () => renderPools(items),
      wide: () => renderPools(items, true),
      names: () => items.map(({ pool }) => pool),
    },
  );
  return 0;
}

async function why(call: CommandCall, operands: Operands): Promise<number> {
  const { place, lease } = await find(call, operands);
  const found = { ...place, ...lease };
  await printAnswer(call, 'Lease', toJson(found), {
    text: () => renderReason(found),
    names: () => [found.address],
  });
  return 0;
}

async function free(call: CommandCall, operands: Operands): Promise<number> {
  const { place, lease } = await find(call, operands);
  if (lease.state !== 'unused' && !call.on('force')) {
    throw new CniError(
      ErrorCode.tryAgainLater,
      `Cannot free ${lease.address} of network "${place.network}": it is ${WORDS[lease.state]}`,
      { details: `${lease.evidence.join('; ')}; --force frees it anyway` },
    );
  }
  withStore(place.dir, { reclaim: false }, store => {
    // If the address has a new owner since we looked, that owner keeps it.
    const holder = store.findOwner(lease.address);
    if (JSON.stringify(holder) === JSON.stringify(lease.owner)) store.release([lease.address]);
    else
      throw new CniError(
        ErrorCode.tryAgainLater,
        `Cannot free ${lease.address}: it has just got another holder`,
      );
  });
  return 0;
}

const WORDS = {
  live: 'in use',
  new: 'new, an ADD may be running',
  unknown: 'possibly in use',
} as const;

async function find(
  call: CommandCall,
  [network = '', text = '']: Operands,
): Promise<{ place: LeasePlace; lease: InspectedLease }> {
  const ip = findIp(text);
  if (ip === undefined) throw new UsageError(`Cannot look for "${text}": it is not an address`);
  const place = await placeOf(call, network);
  const lease = inspectLease(place.dir, renderIp(ip), findWitnesses(call, network));
  if (lease) return { place, lease };
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot find ${renderIp(ip)} in "${place.dir}": it is not leased`,
  );
}

function inspectAll(call: CommandCall, place: LeasePlace): (InspectedLease & LeasePlace)[] {
  const witnesses = findWitnesses(call, place.network);
  return listLeases(place.dir)
    .map(parseIp)
    .sort((a, b) => a.family - b.family || (a.value < b.value ? -1 : 1))
    .flatMap(ip => {
      const lease = inspectLease(place.dir, renderIp(ip), witnesses);
      return lease ? { ...place, ...lease } : [];
    });
}
