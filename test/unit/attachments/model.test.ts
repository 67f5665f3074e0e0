// Does every order of steps, and every death, end well for one attachment? And is each rule needed for that?
import { expect, test } from 'bun:test';
import {
  ADD,
  actor,
  CHANGE,
  DEL,
  EMPTY,
  endings,
  MADE,
  RECOVER,
  REMOVE,
  REPAIR,
  RULES,
  type Rules,
  runtime,
  type World,
} from './model.ts';

type Calls = Parameters<typeof runtime>[0];
type Problem = string | undefined;

/** Recovery that may die twice, and then does not. */
const recoveries = [
  actor('recovery 1', RECOVER, { after: 0 }),
  actor('recovery 2', RECOVER, { after: 1 }),
  actor('recovery 3', RECOVER, { after: 2, isMortal: false }),
];
const others = (calls: Calls, more = {}) => actor('runtime', runtime(calls), more);
const broken = { ...MADE, parts: ['f1', undefined] } as const;

/** What was promised to the other runtime by the success of its last call. */
function promised(life: string | undefined): (world: World) => Problem {
  return ({ parts, entry, actors }) => {
    if (actors.some(({ name, is }) => name === 'runtime' && is === 'working')) return 'it waits for ever';
    const found = [...parts, entry?.life];
    return found.every(one => one === life) ? undefined : `${life ?? 'DEL'} succeeded, but there is ${found}`;
  };
}

/** Everything or nothing, and nothing unfinished. */
const whole = ({ parts, entry, note }: World): Problem => {
  const found = [...parts, entry?.life];
  return found.every(one => one === found[0]) && !note
    ? undefined
    : `in part: ${found} ${JSON.stringify(note)}`;
};

const unlessDead =
  (check: (world: World) => Problem) =>
  (world: World): Problem =>
    world.actors[0]?.is === 'dead' ? undefined : check(world);
const ifDead =
  (check: (world: World) => Problem) =>
  (world: World): Problem =>
    world.actors[0]?.is === 'dead' ? check(world) : undefined;

const DELETES: Calls = [['DEL', 'f1']];
const RENEWS: Calls = [
  ['DEL', 'f1'],
  ['ADD', 'f2'],
];

const SCENES: Readonly<Record<string, readonly [World, (world: World) => Problem]>> = {
  'our ADD dies': [{ ...EMPTY, actors: [actor('add', ADD), ...recoveries] }, whole],
  'our ADD dies; recovery beside an ADD of another runtime': [
    { ...EMPTY, actors: [actor('add', ADD), ...recoveries, others([['ADD', 'f1']], { after: 0 })] },
    ifDead(promised('f1')),
  ],
  'our DEL dies': [{ ...MADE, actors: [actor('del', DEL), ...recoveries] }, whole],
  'our DEL dies; recovery beside DEL': [
    { ...MADE, actors: [actor('del', DEL), ...recoveries, others(DELETES, { after: 0 })] },
    promised(undefined),
  ],
  'our DEL dies; recovery beside DEL and ADD': [
    { ...MADE, actors: [actor('del', DEL), ...recoveries, others(RENEWS, { after: 0 })] },
    promised('f2'),
  ],
  'our DEL dies; recovery beside an ADD without a DEL': [
    { ...MADE, actors: [actor('del', DEL), ...recoveries, others([['ADD', 'f2']], { after: 0 })] },
    promised('f2'),
  ],
  'GC beside DEL and ADD': [
    { ...MADE, actors: [actor('gc', REMOVE), ...recoveries, others(RENEWS)] },
    promised('f2'),
  ],
  'repair beside DEL': [
    { ...broken, actors: [actor('repair', REPAIR), others(DELETES)] },
    unlessDead(promised(undefined)),
  ],
  'repair beside DEL and ADD': [
    { ...broken, actors: [actor('repair', REPAIR), others(RENEWS)] },
    unlessDead(promised('f2')),
  ],
  'a change beside DEL': [
    { ...broken, actors: [actor('change', CHANGE), others(DELETES)] },
    unlessDead(promised(undefined)),
  ],
  'a change beside DEL and ADD': [
    { ...broken, actors: [actor('change', CHANGE), others(RENEWS)] },
    unlessDead(promised('f2')),
  ],
};

/** Whether a scene may end badly. */
function mayEndBadly(rules: Rules): boolean {
  for (const [world, check] of Object.values(SCENES).reverse())
    for (const end of endings(world, rules)) if (check(end) !== undefined) return true;
  return false;
}

test.each(Object.entries(SCENES))('%s: every order of steps ends well', (_, [world, check]) => {
  const problems = new Set<Problem>();
  for (const end of endings(world, RULES)) problems.add(check(end));
  expect([...problems]).toEqual([undefined]);
});

// What stamps add shows only where plugins leave no generation, and there nothing tells that an ADD has begun.
test.each([
  [['generations']],
  [['waits']],
  [['asksAfter']],
  [['takesAside']],
  [['generationFirst']],
  [['looksBeforeUndo']],
  [['waitsBefore', 'asksNode']],
])('without %s, some order ends badly', rules => {
  expect(mayEndBadly({ ...RULES, ...Object.fromEntries(rules.map(rule => [rule, false])) })).toBe(true);
});
