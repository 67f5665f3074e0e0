// How long does host-local take on a node that has handed out nearly all of a /16?
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { offsetIp, parseIp, renderIp } from '../../src/net/ip.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { type Samples, takeTurns, timed } from './measure.ts';

const FIRST = parseIp('10.1.0.2');

/**
 * Times whole processes: an ADD that continues after the last lease, an ADD that has to skip all of them, the ADD after one of
 * another program, DEL.
 * @param leases number of existing ones, consecutive, with ids as long as those of runtimes
 */
export async function measureLeases(leases: number, rounds: number): Promise<Samples> {
  const dataDir = mkdtempSync(join(tmpdir(), 'cat-bench-'));
  const dir = join(dataDir, 'full');
  try {
    mkdirSync(dir);
    for (let i = 0; i < leases; i++) {
      const owner = i.toString(16).padStart(64, '0');
      writeFileSync(join(dir, renderIp(offsetIp(FIRST, BigInt(i)))), `${owner}\r\neth0`);
    }
    const ipam = { type: 'host-local', ranges: [[{ subnet: '10.1.0.0/16' }]], dataDir };
    const conf = JSON.stringify({ cniVersion: '1.0.0', name: 'full', type: 'bridge', ipam });
    const call = (command: string) => timed(() => host(command, conf));
    const contestant = {
      name: `${leases}`,
      async round() {
        const next = await call('ADD');
        const del = await call('DEL');
        writeFileSync(join(dir, 'last_reserved_ip.0'), renderIp(offsetIp(FIRST, -1n)));
        const past = await call('ADD');
        const last = await call('DEL');
        // As the reference does it, which does not know our files.
        const foreign = join(dir, renderIp(offsetIp(FIRST, BigInt(leases + 9))));
        writeFileSync(foreign, 'foreign\r\neth0');
        const after = await call('ADD');
        await call('DEL');
        rmSync(foreign);
        // So that the next round starts from the same state.
        await call('DEL');
        return {
          'ADD, next': next,
          'ADD, past all': past,
          'ADD, after another': after,
          DEL: (del + last) / 2,
        };
      },
    };
    return await takeTurns([contestant], rounds);
  } finally {
    rmSync(dataDir, { recursive: true });
  }
}

function host(command: string, conf: string): void {
  const { exitCode, stdout } = Bun.spawnSync([join(BIN_DIR, 'host-local')], {
    env: {
      CNI_COMMAND: command,
      CNI_CONTAINERID: 'bench',
      CNI_NETNS: '/x',
      CNI_IFNAME: 'eth0',
      CNI_PATH: BIN_DIR,
    },
    stdin: Buffer.from(conf),
  });
  if (exitCode !== 0) throw new Error(`Cannot ${command} with host-local: ${stdout.toString()}`);
}
