// Which packets show that the containers of a real node are connected, and where do those from outside come from?

import { parseFrozen } from '../../chain/config/conflist.ts';
import { keyOf } from '../../cni/attachment.ts';
import { parseResult } from '../../cni/result.ts';
import { configurePlugins } from '../../lab/configured.ts';
import {
  closeNamespace,
  createNameless,
  ipsOf,
  type Lab,
  layOutside,
  type Namespace,
  openNamespace,
} from '../../lab/host.ts';
import { type Probe, type Sent, trafficOf } from '../../lab/probes.ts';
import {
  cidrContains,
  cidrsOverlap,
  type Ip,
  parseCidr,
  parseIp,
  renderCidr,
  renderIp,
} from '../../net/ip.ts';
import { removeLink } from '../../netlink/rtnl/link.ts';
import { listListeners } from '../../netlink/sock-diag.ts';
import { findNetns, inNetns, openOwnNetns } from '../../sys/netns.ts';
import type { RecordedAttachment } from '../facts.ts';
import type { NodeAttachment } from '../model.ts';
import { titleOf } from '../words.ts';
import { Site } from './site.ts';
import { addressOfNode, type From, type To, uplinkOf } from './why-not.ts';

/** An attachment as it is shown, and as it was made. */
export interface Target {
  readonly shown: NodeAttachment;
  readonly known: RecordedAttachment;
}

export interface ExtraTraffic {
  /** A host outside, instead of the next hop of the uplink; with a port, a TCP server there. */
  readonly beyond: { readonly address: Ip; readonly port?: number } | undefined;
  readonly rates: boolean;
}

/** Benchmarks have these addresses (RFC 2544), and no network should; the first pair that the node does not route is used. */
const PAIRS = [0, 1, 2, 3].map(at => ({
  near: { 4: `198.18.25${at}.1/30`, 6: `fd00:ca7e:0:${at}::1/64` },
  far: { 4: `198.18.25${at}.2/30`, 6: `fd00:ca7e:0:${at}::2/64` },
}));

const LINK_LOCAL = parseCidr('fe80::/10');

/**
 * This node, with a namespace that stands for everything outside: no process is in it, and it vanishes when this is closed or the
 * process ends. No other namespace is changed; sockets are opened in them while a probe runs.
 */
export class Traffic {
  readonly #node = Site.openNode();
  readonly #lab: Lab;
  readonly #cable: number;
  readonly #places = new Map<string, Namespace | undefined>();
  readonly #targets: readonly Target[];
  readonly #wanted: ExtraTraffic;

  /** @param dir where the namespace has a path for a moment */
  constructor(targets: readonly Target[], wanted: ExtraTraffic, dir: string) {
    this.#targets = targets;
    this.#wanted = wanted;
    const hasV6 = this.#node.sysctl('net/ipv6/conf/default/disable_ipv6') === '0';
    const families = hasV6 ? ([4, 6] as const) : ([4] as const);
    const opened: Namespace[] = [];
    const keep = (place: Namespace): Namespace => {
      opened.push(place);
      return place;
    };
    try {
      const { near, far } = this.#freePair();
      const host = keep(openNamespace('host', openOwnNetns()));
      const ends = { host, outside: keep(createNameless('outside', dir)), families };
      const [cable] = layOutside(ends, `probe${process.pid}`, near, far);
      this.#cable = cable.index;
      this.#lab = { ...ends, hostAddress: ipsOf(near), outsideAddress: ipsOf(far) };
    } catch (error) {
      opened.forEach(closeNamespace);
      this.#node.close();
      throw error;
    }
  }

  #freePair(): (typeof PAIRS)[number] {
    const { addresses, routes } = this.#node.tables;
    const taken = [
      ...addresses.map(({ cidr }) => cidr),
      ...routes.flatMap(({ dst }) => (dst.prefix > 0 ? [dst] : [])),
    ];
    const isFree = (text: string) => !taken.some(one => cidrsOverlap(one, parseCidr(text)));
    const pair = PAIRS.find(({ near }) => isFree(near[4]) && isFree(near[6]));
    if (pair) return pair;
    const list = PAIRS.map(({ near }) => renderCidr(parseCidr(near[4]))).join(', ');
    throw new Error(`Cannot stand for a host outside: the node has routes to all of ${list}`);
  }

  /** The probes of an attachment; a text says why there are none. */
  probesOf(target: Target): readonly Probe[] | string {
    const container = this.#attached(target);
    if (typeof container === 'string') return container;
    const { shown, known } = target;
    const neighbours = this.#targets.filter(
      ({ shown: one }) => one.network === shown.network && one.netns !== shown.netns,
    );
    const [neighbour] = neighbours.flatMap(one => {
      const entered = this.#attached(one);
      return typeof entered === 'string' ? [] : [entered];
    });
    const { list, place } = container;
    const nodeAddress = this.#lab.families.flatMap(family => {
      const address = addressOfNode(this.#node, family);
      return address === undefined ? [] : [[family, parseIp(address)] as const];
    });
    const listeners = (protocol: string) => listListeners(protocol === 'udp' ? 17 : 6) ?? [];
    const live = {
      nodeAddress: Object.fromEntries(nodeAddress),
      beyond: this.#beyond(),
      isServed: (protocol: string, port: number) =>
        inNetns(place.netns, () => listeners(protocol).some(one => one.port === port)),
    };
    const plugins = configurePlugins(list, known.capabilityArgs);
    const scene = { lab: this.#lab, plugins, ifname: shown.ifname, container, neighbour, live };
    return trafficOf({ ...scene, sysctlsBefore: new Map<string, string>() }, this.#wanted.rates);
  }

  #beyond(): { readonly address: Ip; readonly port?: number }[] {
    if (this.#wanted.beyond) return [this.#wanted.beyond];
    return this.#lab.families.flatMap(family => {
      const gateway = uplinkOf(this.#node, family)?.gateway;
      // A link-local one is another host on each link.
      return gateway === undefined || cidrContains(LINK_LOCAL, gateway) ? [] : [{ address: gateway }];
    });
  }

  /** An attachment whose container can be entered, with its list as it was at ADD. */
  #attached({ shown, known: { source, result } }: Target) {
    if (shown.state !== 'attached') return `it is ${shown.state}`;
    if (source === '' || result === undefined) return 'the list and the result of its ADD are not on record';
    if (!this.#places.has(shown.netns)) {
      const netns = findNetns(shown.netns);
      this.#places.set(shown.netns, netns && openNamespace(titleOf(shown), netns));
    }
    const place = this.#places.get(shown.netns);
    if (place === undefined) return `its namespace "${shown.netns}" cannot be entered`;
    const list = parseFrozen(source);
    return { place, list, result: parseResult(result, list.version) };
  }

  /** The ends of a probe, for the walk that names the hop at which its packet stops. */
  endsOf({ from, to, port, protocol }: Sent, { shown }: Target): readonly [From, To] {
    const { family } = to;
    const address = renderIp(to);
    const owner = this.#targets.find(({ shown: one }) =>
      one.addresses.some(text => text.replace(/\/.*/, '') === address),
    );
    const { containerId } = shown;
    const start = {
      outside: { kind: 'outside', address: renderIp(this.#lab.outsideAddress[family]) },
      node: { kind: 'node' },
      container: { kind: 'container', containerId },
    } as const;
    const end = owner
      ? ({ kind: 'container', containerId: owner.shown.containerId } as const)
      : ({ kind: 'outside' } as const);
    return [start[from], { ...end, address, port, protocol, family }];
  }

  close(): void {
    removeLink(this.#lab.host.route, this.#cable);
    for (const place of this.#places.values()) if (place) closeNamespace(place);
    closeNamespace(this.#lab.outside);
    closeNamespace(this.#lab.host);
    this.#node.close();
  }
}

/** Pairs what a node shows with what is on record. */
export function targetsOf(
  shown: readonly NodeAttachment[],
  recorded: readonly RecordedAttachment[],
): Target[] {
  const known = new Map(recorded.map(one => [keyOf(one), one]));
  return shown.flatMap(one => {
    const own = known.get(keyOf(one));
    return own ? [{ shown: one, known: own }] : [];
  });
}
