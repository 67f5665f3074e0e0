// Do handles read as tc prints them?
import { expect, test } from 'bun:test';
import {
  renderTcHandle,
  TC_H_INGRESS,
  TC_H_ROOT,
  tcHandle,
} from '../../../../../src/netlink/rtnl/tc/tcmsg.ts';

test('tcHandle() joins two halves', () => {
  expect(tcHandle(1, 0)).toBe(0x10000);
  expect(tcHandle(0xffff, 0xfff1)).toBe(TC_H_INGRESS);
});

test('renderTcHandle() prints as tc does', () => {
  expect([tcHandle(1, 0), tcHandle(0x800d, 0), TC_H_INGRESS, TC_H_ROOT].map(renderTcHandle)).toEqual([
    '1:',
    '800d:',
    'ffff:fff1',
    'root',
  ]);
});
