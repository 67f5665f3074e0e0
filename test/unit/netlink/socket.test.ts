// Does the kernel's refusal read well, and which refusals may pass?

import { afterAll, afterEach, describe, expect, test } from 'bun:test';
import { closeSync } from 'node:fs';
import { encodeMessages, NLM_F_ACK, NLM_F_REQUEST } from '../../../src/netlink/codec.ts';
import { runProgram } from '../../../src/netlink/iptables/program.ts';
import { findLink, getLink, linkMessage, listLinks } from '../../../src/netlink/rtnl/link.ts';
import {
  type Exchange,
  exchange,
  isNetlinkError,
  listenToExchanges,
  NETLINK_ROUTE,
  NetlinkError,
  NetlinkSocket,
  openNetlink,
  sendWhole,
  tolerating,
} from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { run } from '../../helpers/command.ts';

describe('NetlinkError', () => {
  test('contains the request, the reason, and the message of the kernel', () => {
    const error = new NetlinkError('create link "cni0" of kind bridge', Errno.EEXIST, 'Device exists');
    expect(error.message).toBe(
      'Cannot create link "cni0" of kind bridge: object exists (EEXIST), kernel says "Device exists"',
    );
    expect(error).toMatchObject({ errno: 17, op: 'create link "cni0" of kind bridge' });
  });

  test('works without a message of the kernel', () => {
    expect(new NetlinkError('list links', 4_000).message).toBe('Cannot list links: error 4000');
  });
});

test('isNetlinkError() compares numbers', () => {
  const error = new NetlinkError('x', Errno.ENOENT);
  expect(isNetlinkError(error, Errno.EEXIST, Errno.ENOENT)).toBe(true);
  expect(isNetlinkError(error, Errno.EEXIST)).toBe(false);
  expect(isNetlinkError(new Error('x'), Errno.ENOENT)).toBe(false);
});

test('tolerating() ignores named errors and no others', () => {
  const refuse = (errno: number) => () => {
    throw new NetlinkError('x', errno);
  };
  expect(tolerating([Errno.ENOENT], () => 7)).toBe(7);
  expect(tolerating([Errno.ENOENT], refuse(Errno.ENOENT))).toBeUndefined();
  expect(() => tolerating([Errno.ENOENT], refuse(Errno.EPERM))).toThrow('EPERM');
});

const RTM_GETLINK = 18;

const socket = new NetlinkSocket(NETLINK_ROUTE);
afterAll(() => socket.close());

const ask = (ifname: string) => ({
  op: `find link "${ifname}"`,
  type: RTM_GETLINK,
  body: linkMessage.encode({}, { ifname }).slice(),
});

describe('NetlinkSocket', () => {
  test('dump() returns all objects, as `ip` sees them', async () => {
    const { stdout } = await run(['ip', '-j', 'link', 'show']);
    const names = JSON.parse(stdout).map(({ ifname }: { ifname: string }) => ifname);
    expect(
      listLinks(socket)
        .map(({ name }) => name)
        .sort(),
    ).toEqual(names.sort());
  });

  test('request() returns one object', () => {
    expect(getLink(socket, 'lo')).toMatchObject({ index: 1, name: 'lo', mac: '00:00:00:00:00:00' });
    expect(getLink(socket, 1).name).toBe('lo');
  });

  test('request() throws errors of the kernel', () => {
    expect(findLink(socket, 'nosuchlink')).toBeUndefined();
    expect(() => getLink(socket, 'nosuchlink')).toThrow(
      'Cannot find link "nosuchlink": no such device (ENODEV)',
    );
  });

  test('request() passes on the message of the kernel', () => {
    let refusal: unknown;
    try {
      // A name of 20 bytes does not fit the policy of IFLA_IFNAME.
      socket.request(ask('x'.repeat(20)));
    } catch (thrown) {
      refusal = thrown;
    }
    expect(isNetlinkError(refusal)).toBe(false);
    expect(refusal).toBeInstanceOf(NetlinkError);
    expect((refusal as NetlinkError).kernelMessage).toContain('Attribute failed policy validation');
  });

  test('requestAll() reads every answer before it throws the first error', () => {
    const all = () => socket.requestAll([ask('lo'), ask('nosuchlink'), ask('lo')]);
    expect(all).toThrow('Cannot find link "nosuchlink"');
    expect(socket.requestAll([ask('lo'), ask('lo')])).toHaveLength(2);
  });

  test('attemptAll() returns answers and errors in order, however many', () => {
    const many = Array.from({ length: 250 }, (_, i) => ask(i % 2 ? 'nosuchlink' : 'lo'));
    const outcomes = socket.attemptAll(many);
    expect(
      outcomes.map(outcome => (outcome instanceof NetlinkError ? outcome.errno : outcome.length)),
    ).toEqual(many.map((_, i) => (i % 2 ? Errno.ENODEV : 1)));
    expect(socket.attemptAll([])).toEqual([]);
  });

  test('ask() and askAll() return nothing for the errors that mean so, and throw the others', () => {
    const read = (body: Uint8Array) => body.length > 0;
    const question = (name: string, isQuestion: boolean, absent: readonly number[] = [Errno.ENODEV]) => {
      return { ...ask(name), isQuestion, absent, read };
    };
    const all = [question('nosuchlink', false), question('lo', true), question('nosuchlink', true)];
    expect(socket.askAll(all)).toEqual([undefined, true, undefined]);
    expect(() => socket.askAll(all.map(one => ({ ...one, absent: [] })))).toThrow(
      'Cannot find link "nosuchlink": no such device (ENODEV)',
    );
    expect(socket.ask(question('lo', true, []))).toBe(true);
    // Nothing is left unread that the next question would get.
    expect(socket.ask(question('nosuchlink', false))).toBeUndefined();
  });

  test('requestAll() names which of several failed, at any position', () => {
    for (let at = 0; at < 4; at++) {
      const all = Array.from({ length: 4 }, (_, i) => ask(i === at ? `none${i}` : 'lo'));
      expect(() => socket.requestAll(all)).toThrow(`Cannot find link "none${at}"`);
    }
  });

  test('dump() throws errors of the kernel', () => {
    const strange = { op: 'dump nothing', type: 0x7f0, body: new Uint8Array(16) };
    try {
      socket.dump(strange);
      throw new Error('not refused');
    } catch (thrown) {
      expect(isNetlinkError(thrown, Errno.EOPNOTSUPP, Errno.EINVAL)).toBe(true);
    }
  });
});

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

/** linux/netlink.h: a message that nothing is done for. */
const NLMSG_NOOP = 1;

test('sendWhole() sends what fits the buffer, and more if the process may enlarge it, or reports the limit', () => {
  const fd = openNetlink(NETLINK_ROUTE);
  const messageOf = (bytes: number) =>
    encodeMessages([
      { type: NLMSG_NOOP, flags: NLM_F_REQUEST | NLM_F_ACK, seq: 1, body: new Uint8Array(bytes) },
    ]);
  try {
    sendWhole(fd, messageOf(100));
    const send = () => sendWhole(fd, messageOf(8 << 20));
    if (process.getuid?.() === 0) expect(send).not.toThrow();
    else expect(send).toThrow('net.core.wmem_max');
  } finally {
    closeSync(fd);
  }
});
