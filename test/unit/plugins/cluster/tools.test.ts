// Does a node that Catena leaves give its blocks back, and a host without a cluster keep them?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { claimantOf } from '../../../../plugins/cluster/claimant.ts';
import type { ClusterConf } from '../../../../plugins/cluster/config.ts';
import { obtainFrom } from '../../../../plugins/cluster/slow.ts';
import { giveBackAll } from '../../../../plugins/cluster/tools.ts';
import { claimBlock } from '../../../../src/pools/claim.ts';
import { findPool } from '../../../../src/pools/find-pool.ts';
import { listAll } from '../../../../src/pools/held.ts';
import { chooseAddresses } from '../../../../src/pools/lease.ts';
import { claiming } from '../../../../src/pools/place.ts';

test('all blocks without a lease go back, but for a dry run', async () => {
  const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-leave-'));
  try {
    const subnets = [{ ipv4: '10.7.0.0/24' }];
    const conf: ClusterConf = { ipam: { type: 'cluster', dataDir, subnets } };
    const claimant = await claimantOf({ conf, network: 'net', environment: process.env }, conf);
    const pool = await findPool(claimant.store, 'default', { subnets });
    await claiming(claimant, performance.now() + 5_000, () => claimBlock(claimant, pool));
    const blocks = async () => (await listAll(claimant.store, 'blocks', {})).map(({ name }) => name);
    const claimed = await blocks();
    expect(claimed).toHaveLength(1);
    expect(await giveBackAll(conf, 'net', true)).toEqual(claimed);
    expect(await blocks()).toEqual(claimed);
    expect(await giveBackAll(conf, 'net', false)).toEqual(claimed);
    expect(await blocks()).toEqual([]);
  } finally {
    fs.rmSync(dataDir, { recursive: true });
  }
});

test('without a cluster, a host that boots under another name still has its blocks', async () => {
  const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-renamed-'));
  try {
    // One block.
    const spec = { subnets: [{ ipv4: '10.7.0.0/29' }], blockSize: 8 };
    const conf: ClusterConf = { ipam: { type: 'cluster', dataDir, ...spec } };
    const pool = { name: 'default', spec, namespaces: [] };
    for (const name of ['first', 'second', 'third']) {
      const environment = { CATENA_BOOT_ID: name, CATENA_NODE_NAME: name };
      const claimant = await claimantOf({ conf, network: 'net', environment }, conf);
      const found = await obtainFrom(
        claimant,
        pool,
        (store, held) => chooseAddresses(held, 'default', store),
        5_000,
        undefined,
      );
      expect([name, found.length]).toEqual([name, 1]);
    }
  } finally {
    fs.rmSync(dataDir, { recursive: true });
  }
});
