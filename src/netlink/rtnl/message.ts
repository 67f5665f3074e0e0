// Which messages does routing netlink have about each kind of object, and how is a request made of one?

import {
  type AttrSet,
  type Layout,
  layout,
  NLM_F_CREATE,
  NLM_F_EXCL,
  type Request,
  type Struct,
} from '../codec.ts';
import type { NetlinkSocket, Question } from '../socket.ts';
import { traced } from '../trace.ts';

/** sys/socket.h */
export const AF = { 4: 2, 6: 10, bridge: 7 } as const;

/** linux/rtnetlink.h, RTM_NEW*: the numbers of RTM_DEL*, RTM_GET* and RTM_SET* follow. */
const FIRST = {
  LINK: 16,
  ADDR: 20,
  ROUTE: 24,
  NEIGH: 28,
  RULE: 32,
  QDISC: 36,
  TCLASS: 40,
  TFILTER: 44,
  MULTICAST: 56,
  NETCONF: 80,
  NSID: 88,
  LINKPROP: 108,
} as const;
const VERBS = ['NEW', 'DEL', 'GET', 'SET'] as const;

type Kind = keyof typeof FIRST;

/** The number of a message: `rtm('DEL', 'LINK')` is RTM_DELLINK. */
export function rtm(verb: (typeof VERBS)[number], kind: Kind): number {
  return FIRST[kind] + VERBS.indexOf(verb);
}

/** The messages about one kind of object. Each request is described by its operation, human-readable: `add route to 10.1.0.0/16`. */
export interface Messages<H, A> extends Layout<H, A> {
  /** Makes an object; EEXIST if it exists already, unless other flags (NLM_F_*) are given. */
  add(op: string, header: Partial<H>, attributes: A, flags?: number): Request;
  /** Changes an object with a message like that which makes it, or with one of its own (`SET`). */
  change(op: string, header: Partial<H>, attributes: A, verb?: 'NEW' | 'SET'): Request;
  remove(op: string, header: Partial<H>, attributes?: A): Request;
  /** The request for a dump. */
  get(op: string, header: Partial<H>, attributes?: A): Request;
  /**
   * Asks for one object.
   * @param absent refusals that mean that it does not exist
   * @param read undefined when it does not exist after all
   */
  question<T>(
    op: string,
    header: Partial<H>,
    attributes: A,
    absent: readonly number[],
    read: (found: { readonly header: H; readonly attrs: A }) => T | undefined,
  ): Question<T>;
  /** The objects that the kernel lists. Older kernels ignore what they are asked for, and list all. */
  list(
    socket: NetlinkSocket,
    op: string,
    header?: Partial<H>,
    attributes?: A,
  ): { readonly header: H; readonly attrs: A }[];
}

/** Describes the messages of a kind: a fixed header, then attributes. Traces show them so, unless another table is to. */
export function messages<H extends object, A extends object>(
  kind: Kind,
  header: Struct<H>,
  set: AttrSet<A>,
  isShown = true,
): Messages<H, A> {
  const names = Object.fromEntries(VERBS.map(verb => [rtm(verb, kind), `RTM_${verb}${kind}`]));
  const body = layout(header, set);
  if (isShown) traced('NETLINK_ROUTE', names, body);
  const none = {} as A;
  const get: Messages<H, A>['get'] = (op, head, own = none) => {
    return { op, type: rtm('GET', kind), body: body.encode(head, own) };
  };
  return {
    ...body,
    add: (op, head, own, flags = NLM_F_CREATE | NLM_F_EXCL) => {
      return { op, type: rtm('NEW', kind), flags, body: body.encode(head, own) };
    },
    change: (op, head, own, verb = 'NEW') => ({ op, type: rtm(verb, kind), body: body.encode(head, own) }),
    remove: (op, head, own = none) => ({ op, type: rtm('DEL', kind), body: body.encode(head, own) }),
    get,
    question: (op, head, own, absent, read) => {
      return { ...get(op, head, own), isQuestion: true, absent, read: one => read(body.decode(one)) };
    },
    list: (socket, op, head = {}, own) => socket.dump(get(op, head, own)).map(one => body.decode(one)),
  };
}
