// What does whereabouts do for each verb?
import { join } from 'node:path';
import { pickCniArgs } from '../../src/cni/cni-args.ts';
import { defined } from '../../src/cni/defined.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { decode, isObject, type JsonObject } from '../../src/cni/json.ts';
import type { Result } from '../../src/cni/result.ts';
import { renderRoutes } from '../../src/cni/routes.ts';
import { findGarbage, splitByUse } from '../../src/ipam/garbage.ts';
import { listLeases } from '../../src/ipam/lease-files.ts';
import { DEFAULT_DATA_DIR, storeExists, withStore } from '../../src/ipam/lease-store.ts';
import { type Owner, renderAttachment } from '../../src/ipam/owner.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { findIp, type Ip, renderIp } from '../../src/net/ip.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { allocate, type Books, findEntry, type Holder, release, requireRoom } from './books.ts';
import { type Ipam, WhereaboutsConf } from './config.ts';
import { withFlatFile } from './flat-file.ts';
import { planRanges, type Range } from './plan.ts';

/** All attempts of one call; a runtime waits longer. */
const DEADLINE_MS = 30_000;
const REQUEST_MS = 5_000;

/** Hands out addresses that are unique in a cluster, in the objects of whereabouts. */
export const whereabouts = definePlugin({
  name: 'whereabouts',
  config: WhereaboutsConf,
  netns: 'unused',

  async add(call) {
    const ipam = ipamOf(call);
    const ranges = planRanges(ipam);
    const books = await openBooks(ipam);
    const holder = holderOf(call);
    call.onFailure('release the addresses', () => releaseAll(call, books, ranges, holder));
    const ips: Ip[] = [];
    for (const range of ranges) ips.push(await allocate(books, range, holder));
    note(call, ips);
    return resultOf(ipam, ranges, ips);
  },

  async check(call) {
    const ipam = ipamOf(call);
    const books = await openBooks(ipam);
    const holder = holderOf(call);
    for (const range of planRanges(ipam)) {
      if (await findEntry(books, range, holder)) continue;
      throw new Error(
        `Cannot find an address of ${renderAttachment(ownerOf(call))} in pool "${range.poolName}"`,
      );
    }
  },

  async del(call) {
    const ipam = ipamOf(call);
    const ranges = planRanges(ipam);
    await releaseAll(call, await openBooks(ipam), ranges, holderOf(call));
  },

  async gc(call) {
    const { kept, log } = call;
    const dir = dirOf(call);
    if (kept === undefined || !storeExists(dir)) return;
    // Entries do not name their node: only what this node has noted may be its garbage.
    const garbage = inNotes(call, store => {
      store.meetAll();
      const { used, free } = splitByUse(findGarbage(store, listLeases(dir), kept));
      for (const address of used)
        log.warn(`Keeping ${address}: its attachment is not valid, but an interface still has it`);
      return free.flatMap(address => store.findOwner(address) ?? []);
    });
    if (garbage.length === 0) return;
    const ipam = ipamOf(call);
    const ranges = planRanges(ipam);
    const books = await openBooks(ipam);
    const owners = new Map(garbage.map(owner => [renderAttachment(owner), owner]));
    await tryAll(
      [...owners.values()].map(
        ({ containerId, ifname = '' }) =>
          () =>
            releaseAll(call, books, ranges, { id: containerId, ifname }),
      ),
    );
  },

  async status(call) {
    try {
      const ipam = ipamOf(call);
      const books = await openBooks(ipam);
      for (const range of planRanges(ipam)) await requireRoom(books, range);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, (cause as Error).message, { cause });
    }
  },
});

/** All ranges, even if one fails: what remained in a later one would never be released. */
async function releaseAll(
  call: Call,
  books: Books,
  ranges: readonly Range[],
  holder: Pick<Holder, 'id' | 'ifname'>,
): Promise<void> {
  await tryAll(ranges.map(range => () => release(books, range, holder)));
  const owner = { containerId: holder.id, ifname: holder.ifname };
  if (storeExists(dirOf(call))) inNotes(call, store => store.release(store.findLeasesOf(owner)));
}

/** What this node has allocated: for GC, and for `catena ipam`. */
function note(call: Call, ips: readonly Ip[]): void {
  const owner = ownerOf(call);
  inNotes(call, store => {
    // The pool decides: a note of another attachment is of one that is gone.
    store.release(ips.map(renderIp).filter(address => store.findOwner(address) !== undefined));
    store.reserve(
      ips.map((ip, setIndex) => ({ ip, setIndex })),
      owner,
    );
  });
}

function inNotes<T>(call: Call, work: Parameters<typeof withStore<T>>[2]): T {
  return withStore(dirOf(call), { reclaim: false, create: true }, work);
}

async function openBooks(ipam: Ipam): Promise<Books> {
  const kubeconfig = ipam.kubernetes?.kubeconfig;
  if (!kubeconfig) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot allocate addresses: "kubernetes.kubeconfig" is missing',
      {
        details: 'give it in "ipam", or in the file that "configuration_path" names',
      },
    );
  }
  const { namespaceIn, openApiServer } = await import('../../src/delegate/api-server.ts');
  return {
    server: openApiServer({ kubeconfig, timeoutMs: REQUEST_MS }),
    namespace: namespaceIn(kubeconfig) ?? 'kube-system',
    network: ipam.network_name ?? '',
    overlapping: ipam.enable_overlapping_ranges ?? true,
    giveUpAt: performance.now() + DEADLINE_MS,
    random: Math.random,
  };
}

function resultOf(ipam: Ipam, ranges: readonly Range[], ips: readonly Ip[]): Result {
  const gateway = ipam.gateway ? findIp(ipam.gateway) : undefined;
  const own = ranges.flatMap(({ subnet }, i) => {
    const ip = ips[i];
    if (ip === undefined) return [];
    const isOf = gateway?.family === ip.family;
    return [
      {
        address: renderCidr({ ip, prefix: subnet.prefix }),
        ...(isOf && gateway ? { gateway: renderIp(gateway) } : {}),
      },
    ];
  });
  const extra = (ipam.addresses ?? []).map(({ address, gateway: way }) => ({
    address,
    ...(way ? { gateway: way } : {}),
  }));
  const routes = renderRoutes(ipam.routes ?? []);
  return { ips: [...own, ...extra], ...(routes.length ? { routes } : {}), ...defined({ dns: ipam.dns }) };
}

function ipamOf({ request, network }: Call): Ipam {
  const ipam: JsonObject = isObject(request.ipam) ? request.ipam : {};
  const merged = { ...request, ipam: withFlatFile(ipam) };
  return decode(WhereaboutsConf, merged, `configuration of "whereabouts" in network "${network}"`).ipam;
}

function holderOf(call: Call): Holder {
  const { K8S_POD_NAMESPACE = '', K8S_POD_NAME = '' } = pickCniArgs(call.args, [
    ...[
      'K8S_POD_NAMESPACE',
      'K8S_POD_NAME',
      'K8S_POD_INFRA_CONTAINER_ID',
      'K8S_POD_UID',
      'IP',
      'GATEWAY',
      'MAC',
    ],
  ]);
  const { containerId, ifname } = call.env;
  // Without a pod, containers must not be taken for each other.
  const podref = K8S_POD_NAME ? `${K8S_POD_NAMESPACE}/${K8S_POD_NAME}` : `/${containerId}`;
  return { id: containerId, podref, ifname };
}

function ownerOf(call: Call): Owner {
  return { containerId: call.env.containerId, ifname: call.env.ifname };
}

function dirOf({ request, network }: Call): string {
  const { dataDir } = isObject(request.ipam) ? request.ipam : {};
  return join((typeof dataDir === 'string' && dataDir) || DEFAULT_DATA_DIR, network);
}
