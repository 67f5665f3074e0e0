// Does a call look as a runtime makes it, is the answer read right, and is exactly the wanted request made to fail?
import { describe, expect, test } from 'bun:test';
import { environmentOf, faultIn, requestOf, toReply } from '../../../src/lab/call.ts';
import { listKernelRequests, withFaults } from '../../../src/lab/play.ts';
import { Errno } from '../../../src/sys/errno.ts';
import { faultAt } from '../../../src/sys/fault.ts';

const CONF = { cniVersion: '1.1.0', name: 'net', type: 'sample' };
const ended = { stderr: '', durationMs: 1 };

describe('environmentOf()', () => {
  test('has the variables of a runtime, and eth0 when there is a container', () => {
    const call = { conf: CONF, container: { id: 'c1', path: '/n' }, args: 'A=b', pluginDirs: ['/x', '/y'] };
    expect(environmentOf('ADD', call)).toEqual({
      CNI_COMMAND: 'ADD',
      CNI_CONTAINERID: 'c1',
      CNI_NETNS: '/n',
      CNI_IFNAME: 'eth0',
      CNI_ARGS: 'A=b',
      CNI_PATH: '/x:/y',
    });
  });

  test('removes variables that are undefined', () => {
    const call = { conf: CONF, container: { id: 'c1', path: '/n' }, env: { CNI_NETNS: undefined, X: '1' } };
    expect(environmentOf('DEL', call)).toEqual({
      CNI_COMMAND: 'DEL',
      CNI_CONTAINERID: 'c1',
      CNI_IFNAME: 'eth0',
      CNI_PATH: '',
      X: '1',
    });
  });
});

describe('requestOf()', () => {
  test('puts prevResult and the valid attachments into the configuration', () => {
    const valid = [{ containerID: 'c1', ifname: 'eth0' }];
    expect(JSON.parse(requestOf({ conf: CONF, prevResult: { ips: [] }, valid }))).toEqual({
      ...CONF,
      prevResult: { ips: [] },
      'cni.dev/valid-attachments': valid,
    });
  });

  test('sends text unchanged', () => {
    expect(requestOf({ conf: '{', prevResult: {} })).toBe('{');
  });
});

describe('toReply()', () => {
  test('distinguishes by exit status', () => {
    expect(toReply({ ...ended, exitCode: 0, stdout: '{"cniVersion": "1.1.0"}' }).result).toEqual({
      cniVersion: '1.1.0',
    });
    expect(toReply({ ...ended, exitCode: 1, stdout: '{"code": 7, "msg": "no"}' }).error).toEqual({
      code: 7,
      msg: 'no',
    });
  });

  test.each(['', '{', '[]', '"text"'])('has neither result nor error for %j', stdout => {
    const reply = toReply({ ...ended, exitCode: 1, stdout });
    expect([reply.result, reply.error]).toEqual([undefined, undefined]);
  });

  test('does not accept an object as error whose code is not a number', () => {
    expect(toReply({ ...ended, exitCode: 1, stdout: '{"code": "7", "msg": "no"}' }).error).toBeUndefined();
  });
});

const ask = (...names: string[]) => names.map(name => faultAt(() => name));

test('withFaults() makes the chosen request fail, and no other', async () => {
  const { value, fault, requests } = await withFaults(2, () => ask('one', 'two', 'three'));
  expect(value).toEqual([undefined, Errno.EIO, undefined]);
  expect(fault).toEqual({ request: 2, what: 'two' });
  expect(requests).toEqual(['one', 'two', 'three']);
});

test('withFaults() ends with its function, even when that throws', async () => {
  const broken = withFaults(1, () => {
    throw new Error('no');
  });
  expect(broken).rejects.toThrow('no');
  await broken.catch(() => {});
  expect(ask('later')).toEqual([undefined]);
});

test('listKernelRequests() makes no request fail', async () => {
  expect(await listKernelRequests(() => ask('one', 'two'))).toEqual(['one', 'two']);
});

test('faultIn() reads the report of an executable', () => {
  const stderr =
    'warning\ncatena: request 3 to the kernel was made to fail: create link "a" of kind veth\nmore\n';
  expect(faultIn(stderr)).toEqual({ request: 3, what: 'create link "a" of kind veth' });
  expect(faultIn('nothing of the kind')).toBeUndefined();
});
