// How is the breakdown of a chain's time shown?
import { LIMITS, type Profile } from './inside.ts';

/** Profiles side by side, and below them what would remain of each ratio. */
export function renderProfiles(profiles: readonly Profile[]): string {
  const names = [...new Set(profiles.flatMap(({ parts }) => [...parts.keys()]))];
  const lines: [name: string, of: (profile: Profile) => number | undefined][] = [
    ['reference, ms', ({ reference }) => reference],
    ['  bare starts of its plugins', ({ referenceStarts }) => referenceStarts],
    ['ours, ms', ({ ours }) => ours],
    ['  start (warm: the client; runtime: loading)', ({ start }) => start],
    ['    of it empty programs', ({ empty }) => empty],
    ['  way to the daemon and back', ({ way }) => way],
    ...names.map((name): (typeof lines)[number] => [`  ${name}`, ({ parts }) => parts.get(name)]),
    ['  kernel, which is in none of these', ({ kernel }) => kernel],
    ['ratio', ({ ours, reference }) => ours / reference],
    ...Object.entries(LIMITS).map(([name, limit]): (typeof lines)[number] => [`  ${name}`, limit]),
    ['  wanted, at most', ({ target }) => target],
  ];
  const heads = profiles.map(({ how, verb }) => `${how} ${verb}`);
  const title = 'what the time of a chain is made of';
  const width = Math.max(title.length, ...lines.map(([name]) => name.length));
  const render = (name: string, cells: readonly string[]) =>
    `${name.padEnd(width)}${cells.map(cell => cell.padStart(15)).join('')}\n`;
  const number = (value: number | undefined) => (value === undefined ? '-' : value.toFixed(2));
  return [
    render(title, heads),
    ...lines.map(([name, of]) => render(name, profiles.map(of).map(number))),
  ].join('');
}
