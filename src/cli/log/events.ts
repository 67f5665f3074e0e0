// What does the history keep of a repair?
import type { Recovery } from '../../chain/records/recover.ts';
import type { RepairReport } from '../../chain/records/repair.ts';
import type { AttachmentId } from '../../cni/attachment.ts';
import { defined } from '../../cni/json.ts';
import type { ContainerNames } from '../../node/names.ts';
import { appendHistory, type HistoryEvent } from '../../observe/history.ts';
import { FAILED_WITHOUT_CODE } from '../../observe/record.ts';
import type { CommandCall } from '../command.ts';
import { runtimeOf } from '../target.ts';

/** Notes what a command did to the node, or to an attachment without a chain that is noted. */
export function noteDone(
  call: CommandCall,
  verb: string,
  message: string,
  { code = 0, id = NO_ATTACHMENT }: { readonly code?: number; readonly id?: AttachmentId } = {},
): void {
  const { stateDir = '' } = runtimeOf(call);
  appendHistory(stateDir, [eventNow(verb, id, { by: 'command', code, message })]);
}

function eventNow(
  verb: string,
  { network, containerId, ifname }: AttachmentId,
  what: Omit<HistoryEvent, 'time' | 'verb' | keyof AttachmentId>,
): HistoryEvent {
  return { time: new Date().toISOString(), verb, network, containerId, ifname, ...what };
}

const NO_ATTACHMENT: AttachmentId = { network: '', containerId: '', ifname: '' };

/** An interrupted or failed operation that was undone, or could not be. */
export function recoveryEvent(recovery: Recovery, by: 'command' | 'daemon'): HistoryEvent {
  const { why, error } = recovery;
  // Of a DEL that failed again for the same reason, the reason is told once.
  const message = error === undefined || why.endsWith(error.message) ? why : `${why}: ${error.message}`;
  const code = error ? error.code || FAILED_WITHOUT_CODE : 0;
  return eventNow('RECOVER', recovery, { by, code, message });
}

/**
 * What a repair undid, and the attachments in which it found a problem.
 * @param names what people call the containers, by id
 */
export function eventsOfRepair(
  { recovered, attachments }: RepairReport,
  names: ReadonlyMap<string, ContainerNames>,
): HistoryEvent[] {
  const changed = attachments.filter(({ state }) => state === 'mended' || state === 'broken');
  return [
    ...recovered.map(one => recoveryEvent(one, 'command')),
    ...changed.map(({ state, plugins, why, ...id }) => {
      const problems = plugins.flatMap(({ type, problem }) =>
        problem === undefined ? [] : `${type}: ${problem}`,
      );
      const error = plugins.find(one => one.error)?.error;
      return eventNow('REPAIR', id, {
        ...podIn(names.get(id.containerId) ?? {}),
        by: 'command',
        code: state === 'mended' ? 0 : error?.code || FAILED_WITHOUT_CODE,
        message: [...problems, ...(why === undefined ? [] : [why])].join('; '),
      });
    }),
  ];
}

/** Names as the history has them: without a namespace of pods, the name is the container's. */
export function podIn({ podNamespace, podName, containerName }: Named) {
  return defined({ podNamespace, podName: podName ?? containerName });
}

type Named = { readonly [Key in keyof ContainerNames]: ContainerNames[Key] | undefined };
