// Does a pool keep the division of its first claim, and not of a look at it?
import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { directoryStore } from '../../../src/pools/directory-store.ts';
import { findPool, lookAtPool } from '../../../src/pools/find-pool.ts';
import { listAll } from '../../../src/pools/held.ts';

test('who only looks notes no size, which would be the only one for ever', async () => {
  const dir = mkdtempSync(`${tmpdir()}/cat-pool-`);
  try {
    const store = directoryStore(dir);
    const subnets = [{ ipv4: '10.8.0.0/16' }];
    expect(await lookAtPool(store, 'p', { subnets, blockSize: 32 })).toMatchObject({ blockSize: 32 });
    expect(await listAll(store, 'pools', {})).toEqual([]);
    expect(await findPool(store, 'p', { subnets, blockSize: 64 })).toMatchObject({ blockSize: 64 });
    for (const find of [lookAtPool, findPool])
      await expect(find(store, 'p', { subnets, blockSize: 32 })).rejects.toMatchObject({ code: 7 });
    await expect(lookAtPool(store, 'p', { subnets: [{ ipv4: '10.0.0.0/8' }] })).resolves.toBeDefined();
    const [pool] = await listAll(store, 'pools', {});
    expect(pool?.annotations).toEqual({
      'catena.cni.cncf.io/block-size': '64',
      'catena.cni.cncf.io/subnets': '10.8.0.0/16',
    });
  } finally {
    rmSync(dir, { recursive: true });
  }
});
