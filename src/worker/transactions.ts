// What did a call do in the kernel, for a runner that wants to know?
import type { KernelTransaction } from '../chain/exec-plugin.ts';
import { type Exchange, listenToExchanges } from '../netlink/exchanges.ts';
import type { WorkerReply } from './protocol.ts';

/** Transactions of one call that are told one by one: a GC may need thousands. */
const MAX_TRANSACTIONS = 200;

/** Does the work; where that is wanted, what it did in the kernel is part of the reply. Nothing else runs meanwhile. */
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

/** What is too much is one row that says how much, and how long it took together. */
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
    ...(refusal === undefined ? {} : { error: refusal }),
  };
}

/** To microseconds: enough, and short on its way. */
function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
