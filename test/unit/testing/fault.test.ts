// Is exactly the wanted request made to fail?
import { expect, test } from 'bun:test';
import { Errno } from '../../../src/sys/errno.ts';
import { faultAt } from '../../../src/sys/fault.ts';
import { faultIn, listKernelRequests, withFaults } from '../../../src/testing/fault.ts';

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
