// Are the leases of a node listed, whatever else is beside their directories?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CommandCall } from '../../../../src/cli/command.ts';
import { run } from '../../../../src/cli/commands/ipam.ts';

test('a link that leads nowhere is no network', async () => {
  const dir = fs.mkdtempSync(join(tmpdir(), 'cat-ipam-'));
  try {
    fs.mkdirSync(join(dir, 'web'));
    fs.writeFileSync(join(dir, 'web', '10.1.0.2'), 'c1\r\neth0');
    fs.symlinkSync('gone', join(dir, 'old'));
    let told = '';
    const call = {
      positionals: ['ls'],
      text: (option: string) => (option.endsWith('-dir') ? dir : undefined),
      on: () => false,
      format: 'json',
      env: {},
      out(text: string) {
        told += text;
      },
    };
    expect(await run(call as unknown as CommandCall)).toBe(0);
    expect(JSON.parse(told).items).toMatchObject([{ network: 'web', address: '10.1.0.2' }]);
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});
