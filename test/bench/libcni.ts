// What runs the reference's chain: libcni itself if it can be built, or else our runner?
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Debian's golang-github-appc-cni-dev installs libcni's sources here. */
const GOPATH = '/usr/share/gocode';

/** A program that runs a chain with libcni, or why there is none. */
export interface LibcniRunner {
  readonly program: string | undefined;
  readonly reason: string;
}

/** Builds the program if Go and the sources of libcni are installed. */
export function buildLibcniRunner(): LibcniRunner {
  const none = (reason: string): LibcniRunner => ({ program: undefined, reason });
  if (Bun.which('go') === null) return none('Go is not installed (golang-go)');
  const sources = join(GOPATH, 'src/github.com/containernetworking/cni/libcni');
  if (!existsSync(sources)) return none(`"${sources}" does not exist (golang-github-appc-cni-dev)`);
  const dir = mkdtempSync(join(tmpdir(), 'cat-bench-'));
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }));
  const program = join(dir, 'libcni-run');
  const { success, stderr } = Bun.spawnSync(
    ['go', 'build', '-o', program, join(import.meta.dir, 'libcni/main.go')],
    {
      env: { ...process.env, GO111MODULE: 'off', GOPATH },
      stdout: 'ignore',
      timeout: 300_000,
    },
  );
  if (success) return { program, reason: '' };
  return none(`go build failed: ${stderr.toString().trim().split('\n').at(-1) ?? ''}`);
}
