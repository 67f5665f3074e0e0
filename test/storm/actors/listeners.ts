// How does the driver have something listen in the namespaces of its node, and ask it?

import { connect } from 'node:net';
import path from 'node:path';
import { slotPath } from '../networks.ts';
import { ENVIRONMENT } from '../node.ts';

const LISTENER = path.resolve(import.meta.dir, '../listener.ts');
const ATTEMPTS = 10;
const CONNECT_MS = 1_500;

/** What a listener says about where it is. */
export interface Greeting {
  readonly token: string;
  readonly somaxconn: string;
}

/** The process that listens for one node, started when it is needed first. */
export class Listeners {
  #child: Bun.Subprocess<'pipe', 'pipe', 'ignore'> | undefined;
  #lines: { read(): Promise<{ done: boolean; value?: Uint8Array | undefined }> } | undefined;
  /** Tokens by slot. */
  readonly #open = new Map<number, string>();
  #turn: Promise<void> = Promise.resolve();

  get pids(): number[] {
    return this.#child ? [this.#child.pid] : [];
  }

  /** Has something listen in the namespaces of these slots, where nothing does yet. */
  async open(tokens: ReadonlyMap<number, string>): Promise<void> {
    // One that is replaced listens nowhere.
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const missing = [...tokens].filter(([slot, token]) => this.#open.get(slot) !== token);
      if (missing.length === 0) return;
      for (const [slot, token] of missing) {
        this.#open.set(slot, token);
        await this.#say(`listen ${slotPath(slot)} ${token}`);
      }
    }
  }

  /** Nothing keeps the namespace alive afterwards. */
  async close(slot: number): Promise<void> {
    const token = this.#open.get(slot);
    this.#open.delete(slot);
    if (token !== undefined) await this.#say(`close ${token}`);
  }

  end(): void {
    this.#child?.kill('SIGKILL');
  }

  /** One line, one answer. */
  #say(line: string): Promise<void> {
    const turn = this.#turn.then(async () => {
      const child = this.#child ?? this.#start();
      child.stdin.write(`${line}\n`);
      child.stdin.flush();
      const { done, value } = (await this.#lines?.read()) ?? { done: true };
      if (value && new TextDecoder().decode(value).includes('stray')) await this.#replace();
      if (done) throw new Error(`Cannot have "${line}" done: the process that listens has ended`);
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /** Another one listens from now on; what is still needed is opened again when it is asked for. */
  async #replace(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    this.#open.clear();
    child?.kill('SIGKILL');
    await child?.exited;
  }

  #start(): Bun.Subprocess<'pipe', 'pipe', 'ignore'> {
    const child = Bun.spawn([process.execPath, LISTENER], {
      cwd: '/',
      env: ENVIRONMENT,
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'ignore',
    });
    this.#child = child;
    this.#lines = child.stdout.getReader();
    return child;
  }
}

/** What answers at an address, or why nothing does. */
export function ask(host: string, port: number): Promise<Greeting | string> {
  return new Promise(resolve => {
    let text = '';
    const socket = connect({ host, port, timeout: CONNECT_MS });
    const end = (answer: Greeting | string): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.on('data', data => {
      text += data;
    });
    socket.on('timeout', () => end('no answer'));
    socket.on('error', error => end((error as NodeJS.ErrnoException).code ?? String(error)));
    socket.on('end', () => {
      try {
        end(JSON.parse(text) as Greeting);
      } catch {
        end(`it said "${text}"`);
      }
    });
  });
}
