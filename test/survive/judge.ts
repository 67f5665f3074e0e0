// Does everything or nothing exist after a verb?

import type { Finished } from '../helpers/command.ts';
import { type Ground, succeed, type Verb } from './ground.ts';
import type { Point } from './points.ts';
import { awaitState, findDifferences, type State } from './state.ts';

/**
 * What is wrong after a verb in which something failed or a worker died, without any recovery: it must report an error object and
 * have undone its work, or have completed despite the fault.
 * @param happened whether the fault happened: a request that was not made again was not struck
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

/** What is wrong after a verb that another process has completed; here a DEL must delete what an ADD made. */
export async function judgeWhole(ground: Ground, verb: Verb): Promise<string | undefined> {
  if (verb !== 'add') return differs(ground, 'absent');
  return judgeAdd(afterAnother(ground), { exitCode: 0 });
}

/** A repeated ADD may have the next address, since the first attempt may have leased the first one. */
export function afterAnother(ground: Ground): Ground {
  // The bridge has the first address, and a neighbour the second.
  const [own, next] = ground.busy ? [3, 4] : [2, 3];
  const state = async () =>
    (await ground.state()).map(line =>
      line.replaceAll(`10.88.0.${next}`, `10.88.0.${own}`).replaceAll(`fd88::${next}`, `fd88::${own}`),
    );
  return { ...ground, state };
}

/** What to look at after a verb: what GC collects no longer has a namespace whose sysctl values could matter. */
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

/**
 * The differences between the state and the wanted one, after the kernel has settled.
 * @param isMet whether a verb of the attachment itself, or of all, has ended since the fault: it removes the lock of a process that died
 *   before it noted anything
 */
export async function differs(
  ground: Ground,
  wanted: 'absent' | 'present',
  isMet = true,
): Promise<string | undefined> {
  const all = await awaitState(ground.state, ground[wanted]);
  const differences = all.filter(line => !OVER.test(line) && (isMet || !LOCK_OF_DEAD.test(line)));
  return differences.length ? `not ${wanted}: ${differences.join('; ')}` : undefined;
}

/** A note that is over, as its entry tells: the next verb removes it. A snapshot of GC that could not be removed goes after its process. */
const OVER = /^\+ file (state\/unsettled\/|run\/gc\/\.catena-)/;
const LOCK_OF_DEAD = /^\+ file run\/locks\/own\//;

/** The error message of a step, if it fails. */
export async function attempt(work: () => Promise<void>): Promise<string | undefined> {
  return work().then(
    () => undefined,
    error => error.message,
  );
}

/** A setting that only saves the kernel work: if it is refused, a host end has an unneeded address. */
const SPARING = /\/net\/ipv6\/conf\/\w+\/disable_ipv6/;

/** A failed ADD must have undone itself; a successful one must be complete. */
async function judgeAdd(
  ground: Ground,
  { exitCode }: Pick<Finished, 'exitCode'>,
): Promise<string | undefined> {
  if (exitCode !== 0) return differs(ground, 'absent');
  const problem = await differs(ground, 'present');
  return problem ?? judgeEnd(ground);
}

/** A DEL must delete everything. */
async function judgeEnd(ground: Ground): Promise<string | undefined> {
  return (await attempt(() => succeed(ground, 'del'))) ?? differs(ground, 'absent');
}

/** DEL or GC must report what it could not delete, or a further one must find it; then nothing may be left. */
async function judgeRemoval(ground: Ground, verb: Verb, { exitCode }: Finished): Promise<string | undefined> {
  if (exitCode === 0 && findDifferences(ground.absent, await ground.state()).length === 0) return undefined;
  return (await attempt(() => succeed(ground, verb))) ?? differs(ground, 'absent');
}

/** A failure must print an error object of the specification. */
function findReplyProblem({ exitCode, stdout, stderr }: Finished): string | undefined {
  if (exitCode === 0) return undefined;
  try {
    const { code, msg } = JSON.parse(stdout || stderr);
    if (typeof code === 'number' && typeof msg === 'string' && msg !== '') return undefined;
  } catch {
    // Reported below.
  }
  return `no error object, exit code ${exitCode}: ${stdout}${stderr}`;
}
