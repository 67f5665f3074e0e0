// Is every request to the kernel reported to a listener, and is nothing done without one?
import { afterEach, describe, expect, test } from 'bun:test';
import { type Exchange, exchange, listenToExchanges } from '../../../src/netlink/exchanges.ts';
import { runProgram } from '../../../src/netlink/iptables/program.ts';
import { findLink, getLink, listLinks } from '../../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../../src/netlink/socket.ts';

afterEach(() => listenToExchanges(undefined));

function heardOf(work: () => void): Exchange[] {
  const heard: Exchange[] = [];
  listenToExchanges(one => void heard.push(one));
  try {
    work();
  } finally {
    listenToExchanges(undefined);
  }
  return heard;
}

describe('exchange()', () => {
  test('reports requests and dumps of a socket as text, with the errors of the kernel', () => {
    const socket = new NetlinkSocket(NETLINK_ROUTE);
    const heard = heardOf(() => {
      getLink(socket, 'lo');
      findLink(socket, 'nosuchlink');
      listLinks(socket);
    });
    findLink(socket, 'lo');
    socket.close();
    expect(heard.map(({ family, what, refusal }) => [family, what, refusal])).toEqual([
      ['rtnetlink', 'find link "lo"', undefined],
      ['rtnetlink', 'find link "nosuchlink"', 'ENODEV'],
      ['rtnetlink', 'list links', undefined],
    ]);
    for (const { startedAt, endedAt } of heard) expect(endedAt).toBeGreaterThan(startedAt);
  });

  test('reports programs, and those that fail', () => {
    const heard = heardOf(() => {
      expect(() => runProgram('do nothing', ['/bin/false'])).toThrow('Cannot do nothing');
    });
    expect(heard).toMatchObject([
      { family: 'iptables', what: 'do nothing', refusal: expect.stringContaining('exit code 1') },
    ]);
  });

  test('names the first of many requests, and returns the result of the work', () => {
    const asked = ['a', 'b', 'c', 'd', 'e'].map(op => ({ op }));
    const heard = heardOf(() => expect(exchange(99, asked, () => 7)).toBe(7));
    expect(heard).toMatchObject([{ family: 'netlink 99', what: 'a; b; c; 2 more' }]);
    expect(exchange(0, asked, () => 8)).toBe(8);
    expect(heard).toHaveLength(1);
  });
});
