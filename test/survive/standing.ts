// How can ip, tc and nft be queried thousands of times in one namespace, without starting them each time?

import { type Finished, TEST_PATH } from '../helpers/command.ts';
import type { Namespace } from '../helpers/namespace.ts';
import { readLines } from './lines.ts';

/** Runs a program as the dump of a namespace needs it (test/helpers/dump.ts). */
export type Exec = (argv: string[], stdin?: string) => Promise<Finished>;

const ANSWER_MS = 30_000;

/**
 * Programs that stay in a namespace until it is deleted, each started on its first query. If every query started a program,
 * looking at the state would cost half of the processor time of a trial.
 */
export function standIn(ns: Namespace): Exec {
  const programs = new Map<string, Standing>();
  return async (argv, stdin) => {
    // nft has no batch mode, but in interactive mode it reads one command after the other.
    const [staying, questions] =
      stdin === undefined ? [['nft', '-j', '-i'], argv.slice(2).join(' ')] : [argv, stdin.trimEnd()];
    const name = staying.join(' ');
    let program = programs.get(name);
    if (!program?.usable) {
      program = new Standing(ns, staying);
      programs.set(name, program);
    }
    return { exitCode: 0, stdout: await program.ask(questions.split('\n')), stderr: '' };
  };
}

/** One program that answers each line with one line of JSON. */
class Standing {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'pipe'>;
  readonly #name: string;
  readonly #waiting: {
    left: number;
    readonly lines: string[];
    readonly report: (lines: string[]) => void;
  }[] = [];
  #over = false;

  constructor(ns: Namespace, argv: readonly string[]) {
    this.#name = argv.join(' ');
    // An interactive program leaves a history file in the home directory.
    const env = { PATH: TEST_PATH, LC_ALL: 'C', HOME: '/nonexistent' };
    const pipes = { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' } as const;
    this.#child = Bun.spawn(['nsenter', `--net=${ns.path}`, '--', ...argv], { ...pipes, env });
    void readLines(this.#child.stdout, line => this.#hear(line)).then(() => this.#end());
  }

  /** False once it has ended, which these programs do after the first query that they cannot answer. */
  get usable(): boolean {
    return !this.#over;
  }

  /** @throws Error with the program's output if it does not answer */
  async ask(questions: readonly string[]): Promise<string> {
    const { promise, resolve } = Promise.withResolvers<string[]>();
    this.#waiting.push({ left: questions.length, lines: [], report: resolve });
    this.#child.stdin.write(questions.map(one => `${one}\n`).join(''));
    this.#child.stdin.flush();
    const late = setTimeout(() => this.#child.kill('SIGKILL'), ANSWER_MS);
    const lines = await promise.finally(() => clearTimeout(late));
    if (lines.length === questions.length) return lines.join('\n');
    throw new Error(
      `Cannot ask "${this.#name}" for "${questions.join('; ')}": ${await this.#child.stderr.text()}`,
    );
  }

  #hear(line: string): void {
    const [first] = this.#waiting;
    if (line === '' || first === undefined) return;
    first.lines.push(line);
    first.left -= 1;
    if (first.left > 0) return;
    this.#waiting.shift();
    first.report(first.lines);
  }

  #end(): void {
    this.#over = true;
    for (const { lines, report } of this.#waiting.splice(0)) report(lines);
  }
}
