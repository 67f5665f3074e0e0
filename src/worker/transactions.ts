// What did a call do in the kernel?
import type { KernelTransaction } from '../chain/run/exec-plugin.ts';
import { defined } from '../cni/defined.ts';
import { type Exchange, listenToExchanges } from '../netlink/exchanges.ts';
import type { WorkerReply } from './protocol.ts';

/** Limit of transactions reported one by one: a GC may need thousands. */
const MAX_TRANSACTIONS = 200;

/** Does the work. If wanted, the reply includes what it did in the kernel; nothing else runs at that time. */
export async function noting(
  wanted: boolean | undefined,
  work: () => Promise<WorkerReply>,
): Promise<WorkerReply> {
  if (!wanted) return work();
  const begin = performance.now();
  const exchanges: Exchange[] = [];
  listenToExchanges(exchange => void exchanges.push(exchange));
  try {
    const reply = await work();
    return { ...reply, transactions: toTransactions(exchanges, begin) };
  } finally {
    listenToExchanges(undefined);
  }
}

/** Transactions above the limit become one row, with their number and total duration. */
export function toTransactions(exchanges: readonly Exchange[], begin: number): KernelTransaction[] {
  const told = exchanges.slice(0, MAX_TRANSACTIONS).map(one => toTransaction(one, begin));
  const [first, ...rest] = exchanges.slice(MAX_TRANSACTIONS);
  const last = rest.at(-1) ?? first;
  if (first === undefined || last === undefined) return told;
  const what = `${rest.length + 1} further transactions`;
  return [...told, toTransaction({ ...first, family: 'all', what, endedAt: last.endedAt }, begin)];
}

function toTransaction(
  { family, what, startedAt, endedAt, refusal }: Exchange,
  begin: number,
): KernelTransaction {
  return {
    family,
    what,
    startMs: round(startedAt - begin),
    durationMs: round(endedAt - startedAt),
    ...defined({ error: refusal }),
  };
}

/** To microseconds: precise enough, and short to send. */
function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
