// Does CHECK of what stands say the same after a swap as before?
import { checkStanding, type Standing } from '../../chain/check-standing.ts';
import type { Runtime } from '../../chain/runtime.ts';
import { runnerJournals } from '../../cni/directories.ts';

/** CHECK of every attachment that has a link of the type: of all runtimes, and of the delegate runner. */
export function checkAll(type: string, runtime: Runtime): Promise<Standing[]> {
  const { stateDir } = runtime;
  return checkStanding(type, stateDir === undefined ? [] : [runnerJournals(stateDir).delegates], runtime);
}

/** Those that passed before, and do not any more. */
export function findWorse(before: readonly Standing[], after: readonly Standing[]): Standing[] {
  const key = ({ network, containerId, ifname }: Standing) => `${network}\n${containerId}\n${ifname}`;
  const sound = new Set(before.filter(({ state }) => state === 'sound').map(key));
  return after.filter(one => one.state === 'broken' && sound.has(key(one)));
}

/** How many there are of each state, and what is wrong with those that are broken. */
export function renderStanding(standing: readonly Standing[]): string {
  const number = (state: Standing['state']) => standing.filter(one => one.state === state).length;
  const unknown = number('unknown') ? `, ${number('unknown')} cannot be checked` : '';
  const broken = standing.filter(({ state }) => state === 'broken');
  return `CHECK: ${number('sound')} pass, ${broken.length} fail${unknown}\n${renderBroken(broken)}`;
}

/** One line for each. */
export function renderBroken(standing: readonly Standing[]): string {
  return standing
    .map(({ network, containerId, ifname, problem }) => `  ${network} ${containerId} ${ifname}: ${problem}\n`)
    .join('');
}
