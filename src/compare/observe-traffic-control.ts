// Which qdiscs, classes and filters are attached to the devices of a namespace, with all their numbers?
import { listClasses } from '../netlink/rtnl/class.ts';
import { type Filter, listFilters } from '../netlink/rtnl/filter.ts';
import type { Qdisc } from '../netlink/rtnl/qdisc.ts';
import { NETLINK_ROUTE } from '../netlink/socket.ts';
import type { Tables } from '../netlink/tables.ts';
import type { Observed } from './observation.ts';
import { toText } from './text.ts';

/** Configured objects only; the kernel's default qdiscs have no handle. */
export function observeTrafficControl(
  tables: Tables,
  nameOf: (index: number) => string,
): (readonly [string, Observed])[] {
  return tables.qdiscs
    .filter(({ handle }) => handle !== 0)
    .flatMap(qdisc => {
      const device = nameOf(qdisc.index);
      const filters = tables.ask(NETLINK_ROUTE, socket =>
        listFilters(socket, qdisc.index, qdisc.handle).filter(({ matches }) => matches),
      );
      const classes =
        qdisc.kind === 'htb' ? tables.ask(NETLINK_ROUTE, socket => listClasses(socket, qdisc.index)) : [];
      return [
        [`qdisc ${hex(qdisc.handle)} at ${hex(qdisc.parent)} of ${device}`, describeQdisc(qdisc)] as const,
        ...classes.map(one => [`class ${hex(one.handle)} of ${device}`, flatten(one.htb)] as const),
        ...filters.map(filter => {
          const name = `filter of preference ${filter.preference} on ${device}`;
          return [name, describeFilter(filter, nameOf)] as const;
        }),
      ];
    });
}

function describeQdisc({ index: _, handle: __, parent: ___, kind, ...options }: Qdisc): Observed {
  return { kind, ...flatten(options) };
}

function describeFilter(
  { kind, protocol, classid, redirectAllTo, selector }: Filter,
  nameOf: (index: number) => string,
): Observed {
  return {
    kind,
    protocol: hex(protocol),
    class: hex(classid),
    ...(redirectAllTo === undefined ? {} : { redirect: nameOf(redirectAllTo) }),
    ...(selector === undefined ? {} : { selector: toText(selector) }),
  };
}

/** Flattens nested properties under joined names: `{tbf: {rateBytes: 5}}` becomes `{'tbf rateBytes': '5'}`. */
function flatten(value: unknown, name: readonly string[] = []): Observed {
  if (value === undefined) return {};
  if (value === null || typeof value !== 'object' || value instanceof Uint8Array)
    return { [name.join(' ')]: toText(value) };
  return Object.assign({}, ...Object.entries(value).map(([key, member]) => flatten(member, [...name, key])));
}

function hex(value: number): string {
  return `0x${value.toString(16)}`;
}
