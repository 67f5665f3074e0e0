// What comes of a fault at each single request of ADD, DEL, upkeep and GC?
import { rmSync } from 'node:fs';
import { keyOfClaim, keyOfPod, type Wish } from '../../src/pools/lease.ts';
import { Random } from '../storm/random.ts';
import { type ApiModel, apiModel } from './api-model.ts';
import { findContradictions, findLeasedTwice } from './checker.ts';
import { clientOf, DIRECT, type Fate, type ModelClient } from './faults.ts';
import { makeSimulatorDir, type SimulatedNode, simulatedNode } from './node.ts';

/** What nodes do, one after the other. Each step may fail. */
export interface History {
  readonly pool: string;
  readonly spec: NonNullable<Parameters<typeof simulatedNode>[0]['spec']>;
  /** One round: the first begins with nothing, each later one with what the one before has left. */
  play(
    nodes: readonly SimulatedNode[],
    model: ApiModel,
    step: (work: Promise<unknown>) => Promise<void>,
    round: number,
  ): Promise<void>;
}

/** What was found at all points of a history. */
export interface Points {
  /** Requests that had the fate, each in a run of its own. */
  readonly points: number;
  readonly problems: readonly string[];
}

const CALM = { lowWater: 4, coolDownS: 0, graceS: 1e6 };
const numbered = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

const CLAIM = { namespace: 'ns', name: 'vm', uid: 'claim-1' };
const CLAIM_PATH = 'apis/k8s.cni.cncf.io/v1alpha1/namespaces/ns/ipamclaims/vm';

/** The wish of a pod of a StatefulSet, and that of a claim. */
export const ORDINAL: Wish = {
  keptFor: keyOfPod('podnet', 'ns', 'web-0', 'eth0'),
  keepS: 600,
  addresses: [],
  isPromise: false,
};
export const CLAIMED: Wish = { keptFor: keyOfClaim(CLAIM), keepS: undefined, addresses: [], isPromise: true };

/** That of the pod to which a machine moves. */
export const MOVING: Wish = { ...CLAIMED, joins: true };

const SINGLES = { lowWater: 0, coolDownS: 0 };
const KEPT = {
  pool: 'lan',
  spec: { subnets: [{ ipv4: '10.3.0.0/28' }], blockSize: 1, layout: 'flat' as const },
};

/** By name. */
export const HISTORIES: Readonly<Record<string, History>> = {
  blocks: {
    pool: 'default',
    spec: { subnets: [{ ipv4: '10.64.0.0/20', ipv6: 'fd64::/116' }], blockSize: 16 },
    async play(nodes, _model, step, round) {
      for (const node of nodes) for (const id of numbered(9, `r${round}`)) await step(node.add(id));
      for (const node of nodes) await step(node.tend(CALM));
      for (const node of nodes) for (const id of numbered(9, `r${round}`)) node.del(id);
      for (const node of nodes) await step(node.tend(CALM));
    },
  },
  // Of so few that each soon goes to the other node.
  'single addresses': {
    pool: 'lan',
    spec: { subnets: [{ ipv4: '10.3.0.0/29' }], blockSize: 1, layout: 'flat' },
    async play(nodes, _model, step, round) {
      for (const node of nodes) {
        for (const id of numbered(3, `r${round}`)) await step(node.add(id));
        for (const id of numbered(3, `r${round}`)) await step(node.delAtOnce(id));
        for (const id of numbered(2, `r${round}-again-`)) await step(node.add(id));
      }
      for (const node of nodes) {
        for (const id of numbered(2, `r${round}-again-`)) await step(node.delAtOnce(id));
        await step(node.tend(SINGLES));
      }
    },
  },
  'kept addresses that change nodes': {
    ...KEPT,
    async play(nodes, model, step, round) {
      if (!model.objects.has(CLAIM_PATH))
        model.put(CLAIM_PATH, { metadata: { name: CLAIM.name, uid: CLAIM.uid } });
      const ids = (what: string) => nodes.map((_, i) => `${what}-${round}-${i}`);
      for (const [i, node] of nodes.entries()) {
        const [vm = '', web = '', again = ''] = ['vm', 'web', 'again'].map(what => ids(what)[i]);
        await step(node.add(vm, 'eth0', CLAIMED));
        await step(node.delAtOnce(vm));
        await step(node.add(web, 'eth0', ORDINAL));
        await step(node.delAtOnce(web));
        await step(node.add(again, 'eth0', ORDINAL));
      }
      // The first node's pod has it, then the other's, while neither node has looked at the store.
      for (const [i, node] of nodes.entries()) await step(node.delAtOnce(ids('again')[i] ?? ''));
      for (const [i, node] of nodes.toReversed().entries())
        await step(node.add(`late-${round}-${i}`, 'eth0', ORDINAL));
      for (const [i, node] of nodes.toReversed().entries()) {
        await step(node.delAtOnce(`late-${round}-${i}`));
        await step(node.tend(SINGLES));
      }
    },
  },
  'addresses of machines that move': {
    ...KEPT,
    async play(nodes, model, step, round) {
      model.put(CLAIM_PATH, { metadata: { name: CLAIM.name, uid: CLAIM.uid } });
      const [a, b] = nodes as [SimulatedNode, SimulatedNode];
      const id = (what: string) => `${what}-${round}`;
      await step(a.add(id('first'), 'eth0', CLAIMED));
      await step(b.add(id('failed'), 'eth0', MOVING));
      await step(b.delAtOnce(id('failed')));
      await step(b.add(id('second'), 'eth0', MOVING));
      await step(a.delAtOnce(id('first')));
      await step(b.delAtOnce(id('second')));
      for (const node of nodes) await step(node.tend(SINGLES));
    },
  },
  'kept addresses whose time is over': {
    ...KEPT,
    async play(nodes, _model, step, round) {
      const wish = { ...ORDINAL, keepS: 0 };
      for (const [i, node] of nodes.entries()) {
        await step(node.add(`web-${round}-${i}`, 'eth0', wish));
        await step(node.delAtOnce(`web-${round}-${i}`));
        await step(node.tend(SINGLES));
        const other = nodes[1 - i];
        await step(other?.add(`other-${round}-${i}`, 'eth0', wish) ?? Promise.resolve());
        await step(node.add(`more-${round}-${i}`, 'eth0', wish));
        await step(other?.delAtOnce(`other-${round}-${i}`) ?? Promise.resolve());
        await step(node.delAtOnce(`more-${round}-${i}`));
      }
    },
  },
};

/** Rounds whose requests are tried: the first, and one that finds what another has left, as all later ones do. */
const ROUNDS = 2;

/**
 * Plays a history once for each request of its first rounds, which then has the fate, with a whole round after it in which what
 * it has left is met, and lets the nodes put things right.
 */
export async function tryEveryPoint({ pool, spec, play }: History, fate: Fate): Promise<Points> {
  const problems: string[] = [];
  for (let at = 1; ; at++) {
    const dir = makeSimulatorDir('cat-sim-');
    try {
      const model = apiModel();
      const draws = new Random(at);
      let sent = 0;
      let isOver = false;
      const clients: ModelClient[] = [];
      const nodes = ['a', 'b'].map(name => {
        model.put(`api/v1/nodes/${name}`, { metadata: { name } });
        const way = { ...DIRECT, fate: (): Fate => (!isOver && ++sent === at ? fate : 'arrives') };
        const api = clientOf(model, way);
        clients.push(api);
        const random = () => draws.next();
        return simulatedNode({ name, dir, api, pool, spec, random, pause: async () => {} });
      });
      const step = async (work: Promise<unknown>): Promise<void> => {
        await work.catch(() => undefined);
        problems.push(...findLeasedTwice(nodes).map(text => `request ${at}: ${text}`));
      };
      for (let round = 0, until = ROUNDS; round < until; round++) {
        const wasReached = sent >= at;
        await play(nodes, model, step, round);
        if (!wasReached && sent >= at) until = round + 2;
      }
      const isReached = sent >= at;
      isOver = true;
      for (const api of clients) api.drain();
      // What an interrupted step has left undone is completed by the next upkeep.
      for (let i = 0; i < 2; i++)
        for (const node of nodes) await node.tend(spec.blockSize === 1 ? SINGLES : CALM, 0);
      const left = findContradictions(model, nodes);
      problems.push(...left.map(text => `request ${at}: ${text}`));
      if (!isReached) return { points: at - 1, problems };
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  }
}
