// What do the traces of measured requests tell: how much of the time was the kernel's?
import type { PluginRecord, RequestRecord } from '../../src/observe/record.ts';
import { listTraces } from '../../src/observe/watcher.ts';
import { directories, type Lab } from '../helpers/netns.ts';
import { until } from '../helpers/until.ts';

/** A plugin call, or what plugins had deferred. */
export type Call = Pick<PluginRecord, 'durationMs' | 'transactions'>;

/** The oldest first, once the last round's trace exists: a daemon replies before it writes. */
export async function readTraces({ tmp }: Lab, lastRound: number): Promise<RequestRecord[]> {
  let records: RequestRecord[] = [];
  await until(() => {
    records = listTraces(`${directories(tmp).CATENA_RUN_DIR}/traces`).records;
    const { verb, containerId } = records.at(-1) ?? {};
    return verb === 'DEL' && containerId?.endsWith(`-${lastRound}`) === true;
  });
  return records;
}

/** Everything that a request made plugins do. */
export function callsIn({ plugins, finishes = [] }: RequestRecord): Call[] {
  return [...plugins, ...finishes];
}

/** Milliseconds of a call in which it waited for the kernel: from sending a request to the last reply. */
export function inKernel({ transactions = [] }: Call): number {
  return sum(transactions, msOf);
}

/** Milliseconds of a call. */
export function msOf({ durationMs }: Pick<Call, 'durationMs'>): number {
  return durationMs;
}

/** The sum over all. */
export function sum<T>(all: readonly T[], of: (one: T) => number): number {
  return all.reduce((total, one) => total + of(one), 0);
}
