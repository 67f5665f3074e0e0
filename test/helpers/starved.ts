// What does a process without a free descriptor say?
import path from 'node:path';

const FIXTURE = path.join(import.meta.dirname, '../fixtures/starved.ts');

/** What it says of itself and of the notes in the state directory: without a descriptor, and then with some. */
export async function askStarved(
  stateDir: string,
): Promise<{ isRunning: string; isOfTest: string; notes: string[] }[]> {
  const argv = ['sh', '-c', 'ulimit -n 64; exec "$0" "$@"', process.execPath, FIXTURE, stateDir];
  const child = Bun.spawn(argv, {
    stdout: 'pipe',
    env: { ...process.env, OF: 'test' },
    stderr: 'inherit',
    timeout: 60_000,
  });
  return JSON.parse(await new Response(child.stdout).text());
}
