// What did a plugin add to the result of the previous one?
import type { Result } from '../cni/result.ts';

/** Short lines: `+ cni0`, `+ 10.1.0.2/24`, `- route 0.0.0.0/0`; none when the plugin passed the result on unchanged. */
export function diffResults(before: Result | undefined, after: Result): string[] {
  const old = linesOf(before ?? {});
  const fresh = linesOf(after);
  return [
    ...fresh.filter(line => !old.includes(line)).map(line => `+ ${line}`),
    ...old.filter(line => !fresh.includes(line)).map(line => `- ${line}`),
  ];
}

function linesOf({ interfaces = [], ips = [], routes = [], dns = {} }: Result): string[] {
  return [
    ...interfaces.map(({ name, sandbox, mtu }) => {
      const size = mtu ? `, mtu ${mtu}` : '';
      return `${name}${sandbox ? ' (container)' : ''}${size}`;
    }),
    ...ips.map(({ address, gateway }) => (gateway ? `${address} gateway ${gateway}` : address)),
    ...routes.map(({ dst, gw }) => (gw ? `route ${dst} via ${gw}` : `route ${dst}`)),
    ...Object.entries(dns).flatMap(([key, value]) => {
      const words = Array.isArray(value) ? value.join(' ') : String(value);
      return words === '' ? [] : [`dns ${key} ${words}`];
    }),
  ];
}
