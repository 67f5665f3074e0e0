import { expect, test } from 'bun:test';
import { endStrays } from '../../../src/delegate/strays.ts';

test('endStrays() ends links of the ADD, and nobody else', async () => {
  const id = `stray-${process.pid}`;
  const start = (env: Record<string, string>) =>
    Bun.spawn(['sleep', '60'], { env: { ...env, PATH: process.env.PATH ?? '' }, detached: true });
  const add = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: id, CNI_IFNAME: 'net1' };
  const strays = [start(add), start({ ...add, CNI_IFNAME: 'eth0' })];
  const others = [
    start({ ...add, CNI_COMMAND: 'DEL' }),
    start({ ...add, CNI_IFNAME: 'net2' }),
    start({ ...add, CNI_CONTAINERID: `${id}0` }),
    start({ OTHER: `CNI_CONTAINERID=${id}` }),
  ];
  try {
    await endStrays(id, ['eth0', 'net1']);
    await Promise.all(strays.map(child => child.exited));
    expect(strays.map(child => child.signalCode)).toEqual(['SIGKILL', 'SIGKILL']);
    expect(others.map(child => child.exitCode ?? child.signalCode)).toEqual([null, null, null, null]);
  } finally {
    for (const child of [...strays, ...others]) child.kill('SIGKILL');
  }
});
