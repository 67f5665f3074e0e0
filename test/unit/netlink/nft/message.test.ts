// When is a transaction sent, and when is it tried again?

import { afterEach, describe, expect, test } from 'bun:test';
import type { Request } from '../../../../src/netlink/codec.ts';
import { commit, commitAfterReading, nftType } from '../../../../src/netlink/nft/message.ts';
import { sweepOwned } from '../../../../src/netlink/nft/skeleton.ts';
import { addTable, hasTable, listTableNames } from '../../../../src/netlink/nft/table.ts';
import {
  NETLINK_NETFILTER,
  NetlinkError,
  NetlinkSocket,
  type Question,
} from '../../../../src/netlink/socket.ts';
import { Errno } from '../../../../src/sys/errno.ts';
import { planFaults } from '../../../../src/sys/fault.ts';

const change = addTable({ family: 'inet', name: 't' });

test('commit() sends nothing for an empty batch', () => {
  const kernel = fakeKernel();
  commit(kernel.socket, []);
  expect(kernel.transactions).toBe(0);
});

describe('without nf_tables in the kernel nothing is there, and a change is refused', () => {
  afterEach(() => planFaults(undefined));

  // 31: no kernel has a protocol of that number. EINVAL: net/netfilter/nfnetlink.c, for a part that it lacks.
  test.each([
    ['the protocol is missing', 31, undefined, 'EPROTONOSUPPORT'],
    ['its part of the protocol is missing', NETLINK_NETFILTER, () => Errno.EINVAL, 'EINVAL'],
  ] as const)('%s', (_, protocol, refusal, words) => {
    const socket = new NetlinkSocket(protocol);
    planFaults(refusal);
    const table = { family: 'inet', name: 't' } as const;
    expect(hasTable(socket, table)).toBe(false);
    expect(listTableNames(socket)).toEqual([]);
    sweepOwned(socket, [{ table, name: 's', key: ['ifname'] }], () => true);
    expect(() => commitAfterReading(socket, () => [change])).toThrow(words);
    expect(() => commit(socket, [change])).toThrow(words);
    socket.close();
  });
});

describe('commitAfterReading()', () => {
  test('names the generation that it read before deciding', () => {
    const kernel = fakeKernel();
    commitAfterReading(kernel.socket, () => [change]);
    expect(kernel.generations).toEqual([7]);
  });

  test('decides again as long as another program is faster', () => {
    const kernel = fakeKernel(Errno.ERESTART, Errno.ERESTART);
    let decisions = 0;
    commitAfterReading(kernel.socket, () => {
      decisions += 1;
      return [change];
    });
    expect([decisions, kernel.generations]).toEqual([3, [7, 8, 9]]);
  });

  test('gives up after a hundred attempts', () => {
    const kernel = fakeKernel(...Array<number>(200).fill(Errno.ERESTART));
    expect(() => commitAfterReading(kernel.socket, () => [change])).toThrow('interrupted by another change');
    expect(kernel.transactions).toBe(100);
  });

  test('passes on other errors, and those of the decision', () => {
    expect(() => commitAfterReading(fakeKernel(Errno.EPERM).socket, () => [change])).toThrow('EPERM');
    const refuse = () => {
      throw new Error('taken');
    };
    expect(() => commitAfterReading(fakeKernel().socket, refuse)).toThrow('taken');
  });
});

/** Refuses transactions with the given numbers in turn; each look at the generation finds a new one. */
function fakeKernel(...refusals: number[]) {
  const kernel = {
    transactions: 0,
    generations: [] as number[],
    read: 6,
    socket: {
      ask({ type, read }: Question<unknown>) {
        expect(type).toBe(nftType('GET', 'GEN'));
        kernel.read += 1;
        return read(Uint8Array.of(0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, kernel.read));
      },
      transaction(begin: Request) {
        kernel.transactions += 1;
        kernel.generations.push(begin.body.at(-1) ?? 0);
        const errno = refusals.shift();
        if (errno) throw new NetlinkError('try', errno);
        return [];
      },
    } as unknown as NetlinkSocket,
  };
  return kernel;
}
