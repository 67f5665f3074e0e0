// Does the kernel's refusal read well, and which refusals may pass?
import { describe, expect, test } from 'bun:test';
import { isNetlinkError, NetlinkError, tolerating } from '../../../src/netlink/errors.ts';
import { Errno } from '../../../src/sys/errno.ts';

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
