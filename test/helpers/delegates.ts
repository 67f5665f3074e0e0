// How does a test run the delegate runner's verbs over networks of scripted plugins?

import path from 'node:path';
import { CatenaConf, optionsOf } from '../../plugins/catena/config.ts';
import { readAttachment } from '../../src/attachments/store.ts';
import { parseCniArgs } from '../../src/cni/env.ts';
import { decode, type JsonObject } from '../../src/cni/json.ts';
import type { NetworkStatus } from '../../src/delegate/cluster.ts';
import { type PodRecord, parsePod } from '../../src/delegate/record.ts';
import type { ContainerRoutes, Pod, Runner } from '../../src/delegate/runner.ts';
import { type Family, renderIp } from '../../src/net/ip.ts';
import type { NoopChain } from './noop-chain.ts';

/** A runner over a {@link NoopChain}, and a log of what it did besides calling plugins. */
export interface TestRunner extends Runner {
  /** `remove 4 eth0`, `add 10.0.0.1 net1`: changes of default routes, in order. */
  readonly changes: string[];
  readonly warnings: string[];
  readonly published: NetworkStatus[][];
  /** Families in which an interface has a default route; the caller sets them. */
  readonly present: Map<string, Family[]>;
}

/** Creates the runner; its networks are in `<chain.dir>/net.d`. */
export function makeRunner(chain: NoopChain, conf: JsonObject, more: Partial<Runner> = {}): TestRunner {
  const request = { type: 'catena', confDir: path.join(chain.dir, 'net.d'), ...conf };
  const changes: string[] = [];
  const warnings: string[] = [];
  const published: NetworkStatus[][] = [];
  const present = new Map<string, Family[]>();
  const routes: ContainerRoutes = {
    familiesWithDefault: ifnames => ifnames.flatMap(name => present.get(name) ?? []),
    removeDefaults: (ifnames, families) =>
      void changes.push(...families.map(family => `remove ${family} ${ifnames.join('+')}`)),
    addDefaults: (ifname, gateways) =>
      void changes.push(...gateways.map(ip => `add ${renderIp(ip)} ${ifname}`)),
  };
  return {
    options: optionsOf(decode(CatenaConf, request, 'configuration'), 'outer', '1.1.0'),
    runtime: runtimeOf(chain),
    podsDir: path.join(chain.dir, 'state/pods'),
    callerCacheDir: path.join(chain.dir, 'callers'),
    routes: async () => routes,
    findTaken: () => undefined,
    warn: message => void warnings.push(message),
    publish: async (_pod, status = []) => void published.push([...status]),
    changes,
    warnings,
    published,
    present,
    ...more,
  };
}

/** The runtime of the chain's plugins, with a journal. */
export function runtimeOf({ dir, runtime }: NoopChain): Runner['runtime'] {
  return { ...runtime, stateDir: path.join(dir, 'state/delegates'), owner: 'catena outer' };
}

/** The networks of {@link makePod} on record; undefined if it has no record. */
export function findPod({ podsDir }: Runner): PodRecord | undefined {
  const record = readAttachment({ journals: [podsDir] }, KEY);
  return record && parsePod(record);
}

/** The default pod of tests. */
export function makePod(more: Partial<Omit<Pod, 'args'>> & { readonly args?: string } = {}): Pod {
  const { args = '', ...rest } = more;
  return {
    containerId: 'c1',
    netns: '/proc/self/ns/net',
    ifname: 'eth0',
    capabilityArgs: {},
    ...rest,
    args: parseCniArgs(args),
  };
}

/** The key of the record of {@link makePod}. */
export const KEY = { network: 'outer', containerId: 'c1', ifname: 'eth0' } as const;
