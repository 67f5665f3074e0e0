// How do scenarios ask the API server?

import path from 'node:path';
import type { Machine } from '../helpers/machine.ts';
import type { Row } from '../helpers/netns.ts';
import { RUNTIME_ENV } from '../helpers/runtimes.ts';
import { inShell } from './manual.ts';

/** kubectl with one account. Every call has a deadline. */
export interface Kubectl {
  /** Its output; throws what it says if it fails. */
  (...args: string[]): Promise<string>;
  /** Its output, or undefined if it fails. */
  try(...args: string[]): Promise<string | undefined>;
  /** One object, or the list of them, as the API server has it. */
  get(...args: string[]): Promise<Row>;
  /** The items of a list. */
  list(...args: string[]): Promise<Row[]>;
  /** Creates or changes what is in a manifest, or objects. */
  apply(...wanted: readonly [string] | readonly Row[]): Promise<string>;
  /** Executes commands of a manual in a directory. They find the program, and its account, as a user's do. */
  follow(commands: string, dir: string): Promise<string>;
  readonly kubeconfig: string;
}

/** The program in a machine. */
export function kubectlOf(machine: Machine, program: string, kubeconfig: string): Kubectl {
  const env = {
    PATH: `${path.dirname(program)}:${RUNTIME_ENV.PATH}`,
    KUBECONFIG: kubeconfig,
    HOME: '/run/kubectl',
  };
  const argv = (args: readonly string[]): string[] => [
    ...[program, `--kubeconfig=${kubeconfig}`, '--request-timeout=30s'],
    ...['--cache-dir=/run/kubectl', ...args],
  ];
  const call = (...args: string[]): Promise<string> => machine.ok(argv(args), { timeoutMs: 120_000 });
  const get = async (...args: string[]): Promise<Row> => JSON.parse(await call('get', '-o', 'json', ...args));
  return Object.assign(call, {
    kubeconfig,
    async try(...args: string[]) {
      const { exitCode, stdout } = await machine.run(argv(args), { timeoutMs: 60_000 });
      return exitCode === 0 ? stdout.trimEnd() : undefined;
    },
    get,
    list: async (...args: string[]) => (await get(...args)).items,
    // The manual waits at most five minutes.
    follow(commands: string, dir: string) {
      return machine.ok(inShell(commands, dir), { env, timeoutMs: 400_000 });
    },
    apply(...wanted: readonly [string] | readonly Row[]) {
      const [manifest] = wanted;
      const list = { apiVersion: 'v1', kind: 'List', items: wanted };
      const stdin = typeof manifest === 'string' ? manifest : JSON.stringify(list);
      return machine.ok(argv(['apply', '-f', '-']), { stdin, timeoutMs: 120_000 });
    },
  });
}
