// Is there everything or nothing after a verb?

import type { Finished } from '../helpers/command.ts';
import { type Ground, succeed, type Verb } from './ground.ts';
import type { Point } from './points.ts';
import { awaitState, findDifferences, type State } from './state.ts';

/**
 * What is wrong after a verb in which something failed or a worker died, and nobody came to help: it says so with an error
 * object and has undone what it did, or it did without.
 * @param happened whether the fault came to pass: a request that did not come again was not struck
 */
export async function judgeUnaided(
  ground: Ground,
  point: Point,
  finished: Finished,
  happened: boolean,
): Promise<string[]> {
  const problems = [findReplyProblem(finished)];
  if (point.verb === 'add') {
    const isDead = happened && point.strike === 'worker killed';
    if (isDead && finished.exitCode === 0 && point.group !== 'boundary')
      problems.push('ADD succeeds though its worker died');
    const spared = finished.exitCode === 0 && SPARING.test(point.what);
    problems.push(await (spared ? judgeEnd(ground) : judgeAdd(ground, finished)));
  } else problems.push(await judgeRemoval(ground, point.verb, finished));
  return problems.filter(problem => problem !== undefined);
}

/** What is wrong after a verb that somebody else has brought to its end; a DEL takes what an ADD made. */
export async function judgeWhole(ground: Ground, verb: Verb): Promise<string | undefined> {
  if (verb !== 'add') return differs(ground, 'absent');
  return judgeAdd(afterAnother(ground), { exitCode: 0 });
}

/** An ADD that was begun anew may have the next address: who was at work before may have taken the first one. */
export function afterAnother(ground: Ground): Ground {
  // The bridge has the first one, and a neighbour the second.
  const [own, next] = ground.busy ? [3, 4] : [2, 3];
  const state = async () =>
    (await ground.state()).map(line =>
      line.replaceAll(`10.88.0.${next}`, `10.88.0.${own}`).replaceAll(`fd88::${next}`, `fd88::${own}`),
    );
  return { ...ground, state };
}

/** What to look at after a verb: what GC collects has no namespace any more in which a value could matter to anybody. */
export function viewFor(ground: Ground, verb: Verb): Ground {
  if (verb !== 'gc') return ground;
  const rest = (state: State) => state.filter(line => !/: somaxconn \d+$/.test(line));
  return {
    ...ground,
    absent: rest(ground.absent),
    present: rest(ground.present),
    state: async () => rest(await ground.state()),
  };
}

/** In what the state differs from the one that is wanted, after the kernel has come to rest. */
export async function differs(ground: Ground, wanted: 'absent' | 'present'): Promise<string | undefined> {
  const all = await awaitState(ground.state, ground[wanted]);
  // The next verb takes away the mark of a record that needs no work.
  const differences =
    wanted === 'absent' ? all : all.filter(line => !line.startsWith('+ file state/unsettled/'));
  return differences.length ? `not ${wanted}: ${differences.join('; ')}` : undefined;
}

/** What a step says when it fails. */
export async function attempt(work: () => Promise<void>): Promise<string | undefined> {
  return work().then(
    () => undefined,
    error => error.message,
  );
}

/** A setting that spares the kernel work: where it is refused, a host's end has an address that nobody needs. */
const SPARING = /\/net\/ipv6\/conf\/\w+\/disable_ipv6/;

/** A failed ADD has undone itself; one that did without is whole. */
async function judgeAdd(
  ground: Ground,
  { exitCode }: Pick<Finished, 'exitCode'>,
): Promise<string | undefined> {
  if (exitCode !== 0) return differs(ground, 'absent');
  const problem = await differs(ground, 'present');
  return problem ?? judgeEnd(ground);
}

/** A DEL takes all of it. */
async function judgeEnd(ground: Ground): Promise<string | undefined> {
  return (await attempt(() => succeed(ground, 'del'))) ?? differs(ground, 'absent');
}

/** What DEL or GC could not take away it says, or a further one finds it; then nothing is there. */
async function judgeRemoval(ground: Ground, verb: Verb, { exitCode }: Finished): Promise<string | undefined> {
  if (exitCode === 0 && findDifferences(ground.absent, await ground.state()).length === 0) return undefined;
  return (await attempt(() => succeed(ground, verb))) ?? differs(ground, 'absent');
}

/** A failure is an error object of the specification. */
function findReplyProblem({ exitCode, stdout, stderr }: Finished): string | undefined {
  if (exitCode === 0) return undefined;
  try {
    const { code, msg } = JSON.parse(stdout || stderr);
    if (typeof code === 'number' && typeof msg === 'string' && msg !== '') return undefined;
  } catch {
    // Told below.
  }
  return `no error object, exit code ${exitCode}: ${stdout}${stderr}`;
}
