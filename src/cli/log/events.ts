// What does the history keep of a repair?
import type { Recovery } from '../../chain/records/recover.ts';
import type { RepairReport } from '../../chain/records/repair.ts';
import type { HistoryEvent } from '../../observe/history.ts';

/** An interrupted or failed operation that was undone, or could not be. */
export function recoveryEvent(
  { network, containerId, ifname, why, error }: Recovery,
  by: 'command' | 'daemon',
): HistoryEvent {
  const message = error === undefined ? why : `${why}: ${error.message}`;
  return {
    time: new Date().toISOString(),
    verb: 'RECOVER',
    network,
    containerId,
    ifname,
    by,
    code: error?.code ?? 0,
    message,
  };
}

/** What a repair undid, and the attachments in which it found a problem. */
export function eventsOfRepair({ recovered, attachments }: RepairReport): HistoryEvent[] {
  const changed = attachments.filter(({ state }) => state === 'mended' || state === 'broken');
  return [
    ...recovered.map(one => recoveryEvent(one, 'command')),
    ...changed.map(({ network, containerId, ifname, state, links, why }): HistoryEvent => {
      const problems = links.flatMap(({ link, problem }) =>
        problem === undefined ? [] : `${link}: ${problem}`,
      );
      const error = links.find(one => one.error)?.error;
      return {
        time: new Date().toISOString(),
        verb: 'REPAIR',
        network,
        containerId,
        ifname,
        by: 'command',
        code: state === 'mended' ? 0 : (error?.code ?? 999),
        message: [...problems, ...(why === undefined ? [] : [why])].join('; '),
      };
    }),
  ];
}
