// Does one socket bring back whole answers and the kernel's refusals? It only reads, so any namespace will do.
import { afterAll, describe, expect, test } from 'bun:test';
import { isNetlinkError, NetlinkError } from '../../../src/netlink/errors.ts';
import { findLink, getLink, listLinks } from '../../../src/netlink/rtnl/link.ts';
import { linkMessage } from '../../../src/netlink/rtnl/link-attrs.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../../src/netlink/socket.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { run } from '../../helpers/command.ts';

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

  test('find() and findAll() return nothing for the errors that mean so, and throw the others', () => {
    const all = [
      ask('nosuchlink'),
      { ...ask('lo'), isQuestion: true },
      { ...ask('nosuchlink'), isQuestion: true },
    ];
    expect(socket.findAll(all, [Errno.ENODEV]).map(body => body !== undefined)).toEqual([false, true, false]);
    expect(() => socket.findAll(all, [])).toThrow('Cannot find link "nosuchlink": no such device (ENODEV)');
    expect(socket.find({ ...ask('lo'), isQuestion: true }, [])).toBeDefined();
    // Nothing is left unread that the next question would get.
    expect(socket.find(ask('nosuchlink'), [Errno.ENODEV])).toBeUndefined();
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
