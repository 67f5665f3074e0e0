// Which rows of a kernel's state went and came between two dumps?
import type { Dump } from './dump.ts';
import type { Row } from './netns.ts';

/** The rows of the kernel's state that went and came. A device that was made again has another number and hardware address. */
export function differences(before: Record<string, Dump>, after: Record<string, Dump>): string[] {
  return Object.entries(before).flatMap(([where, dump]) =>
    Object.entries(dump).flatMap(([part, rows]) => {
      const [old, now] = [rows, after[where]?.[part as keyof Dump] ?? []].map(
        list => new Set((list as Row[]).flatMap(linesOf)),
      );
      const gone = [...(old ?? [])].filter(row => !now?.has(row));
      const come = [...(now ?? [])].filter(row => !old?.has(row));
      return [
        ...gone.map(row => `- ${where} ${part} ${row}`),
        ...come.map(row => `+ ${where} ${part} ${row}`),
      ];
    }),
  );
}

/** Sets in any order of their elements. */
function linesOf(row: Row): string[] {
  const { set, map } = row;
  const own = set ?? map;
  if (own?.elem === undefined) return [JSON.stringify(isAnonymous(row) ? withoutIdentity(row) : row)];
  const { elem, ...rest } = own;
  return [
    JSON.stringify(rest),
    ...elem.map((one: unknown) => `${own.table} ${own.name} ${JSON.stringify(one)}`),
  ];
}

/** An ifb device, whose hardware address the kernel makes up. */
function isAnonymous({ linkinfo }: Row): boolean {
  return linkinfo?.info_kind === 'ifb';
}

function withoutIdentity(row: Row): Row {
  const { ifindex: _, address: __, addr_info: ___, inet6_addr_gen_mode: ____, ...rest } = row;
  return rest;
}
