// Who uses an address, while a container's processes change its network all the time?
import { expect, test } from 'bun:test';
import { writeFileSync } from 'node:fs';
import { findUse } from '../../src/ipam/holders.ts';
import { readInside } from '../../src/node/devices.ts';
import { withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';

const MANY = Array.from({ length: 4_000 }, (_, i) => `10.251.${i >> 8}.${i & 255}`);

describeRoot('a namespace whose addresses never keep still', () => {
  test('what stays there is found, and once', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const batch = (name: string, lines: readonly string[]): string => {
        writeFileSync(`${lab.tmp}/${name}`, `${lines.join('\n')}\n`);
        return `${lab.tmp}/${name}`;
      };
      const many = batch(
        'many',
        MANY.map(one => `addr add ${one}/32 dev lo`),
      );
      await lab.ip(container, '-batch', many);
      // It sorts behind them, so that only the kernel's count of changes tells.
      const change = ['addr add 10.252.0.1/32 dev lo', 'addr del 10.252.0.1/32 dev lo'];
      const restless = lab.start(container, [
        'ip',
        '-batch',
        batch('changes', Array.from({ length: 200_000 }, () => change).flat()),
      ]);
      for (let i = 0; i < 5; i++) {
        const holders = findUse()?.holders;
        const found = MANY.map(one => holders?.get(one)?.filter(({ netns }) => netns === container.path));
        expect(new Set(found.map(one => one?.length))).toEqual(new Set([1]));
        expect(readInside(container.path)?.get('lo')?.device.addresses).toEqual(
          expect.arrayContaining(MANY.map(one => `${one}/32`)),
        );
      }
      expect(restless.exitCode).toBeNull();
      restless.kill('SIGKILL');
      await restless.exited;
    });
  });
});

describeRoot('a device with as many alternative names as the kernel takes', () => {
  test('is seen with its addresses', () =>
    withHost(async lab => {
      const container = await lab.container();
      await lab.ip(container, 'link', 'add', 'big', 'type', 'veth', 'peer', 'name', 'other');
      await lab.ip(container, 'addr', 'add', '10.253.0.1/24', 'dev', 'big');
      const names = Array.from({ length: 400 }, (_, i) => `${i}`.padStart(120, 'x'));
      const lines = names.map(name => `link property add dev big altname ${name}\n`);
      writeFileSync(`${lab.tmp}/names`, lines.join(''));
      await lab.ip(container, '-batch', `${lab.tmp}/names`);
      const holders = findUse()?.holders.get('10.253.0.1');
      expect(holders?.map(({ ifname, netns }) => [ifname, netns])).toEqual([['big', container.path]]);
    }));
});
