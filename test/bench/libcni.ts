// Who runs the reference's chain: libcni itself where it can be built, else our runner.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Debian's golang-github-appc-cni-dev keeps libcni's sources here. */
const GOPATH = '/usr/share/gocode';

/** Path of a program that runs a chain with libcni; undefined without Go or without its sources. */
export function buildLibcniRunner(): string | undefined {
  if (Bun.which('go') === null) return undefined;
  const dir = mkdtempSync(join(tmpdir(), 'cat-bench-'));
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  const program = join(dir, 'libcni-run');
  const { success } = Bun.spawnSync(['go', 'build', '-o', program, join(import.meta.dir, 'libcni/main.go')], {
    env: { ...process.env, GO111MODULE: 'off', GOPATH },
    stdout: 'ignore',
    stderr: 'ignore',
  });
  return success ? program : undefined;
}
