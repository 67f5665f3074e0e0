// Is the CHECK of existing attachments the same after a swap as before?
import { checkStanding, type Standing } from '../../chain/check-standing.ts';
import type { Runtime } from '../../chain/runtime.ts';
import { runnerJournals } from '../../cni/directories.ts';

/** Runs CHECK for every attachment that has a plugin of the type, of all runtimes and of the delegate runner. */
export function checkAll(type: string, runtime: Runtime): Promise<Standing[]> {
  const { stateDir } = runtime;
  return checkStanding(type, stateDir === undefined ? [] : [runnerJournals(stateDir).delegates], runtime);
}

/** Attachments that passed before and fail now. */
export function findWorse(before: readonly Standing[], after: readonly Standing[]): Standing[] {
  const key = ({ network, containerId, ifname }: Standing) => `${network}\n${containerId}\n${ifname}`;
  const sound = new Set(before.filter(({ state }) => state === 'sound').map(key));
  return after.filter(one => one.state === 'broken' && sound.has(key(one)));
}

/** The number of attachments in each state, and what is wrong with the broken ones. */
export function renderStanding(standing: readonly Standing[]): string {
  const number = (state: Standing['state']) => standing.filter(one => one.state === state).length;
  const unknown = number('unknown') ? `, ${number('unknown')} cannot be checked` : '';
  const broken = standing.filter(({ state }) => state === 'broken');
  return `CHECK: ${number('sound')} pass, ${broken.length} fail${unknown}\n${renderBroken(broken)}`;
}

/** One line per attachment. */
export function renderBroken(standing: readonly Standing[]): string {
  return standing
    .map(({ network, containerId, ifname, problem }) => `  ${network} ${containerId} ${ifname}: ${problem}\n`)
    .join('');
}
