// What does `catena ui` do?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isObject, tryParse } from '../../cni/json.ts';
import { PAGE } from '../../ui/bundled-page.ts';
import { serveUi, type UiServer } from '../../ui/server.ts';
import { type Ask, openSources } from '../../ui/sources.ts';
import type { CommandCall } from '../command.ts';
import { countOf } from '../daemon/observer-options.ts';
import { isData } from '../output/format.ts';
import { printOne } from '../output/print.ts';

const IDLE_S = 1_800;
const MAX_PORT = 65_535;

/** The options that each command gets from this one. */
const PASSED_ON: Readonly<Record<string, readonly string[]>> = {
  ls: ['conf-dir', 'bin-dir', 'cni-cache-dir', 'state-dir'],
  doctor: ['conf-dir', 'bin-dir', 'cni-cache-dir', 'state-dir'],
  log: ['conf-dir', 'bin-dir', 'cni-cache-dir', 'state-dir', 'trace-dir'],
  ipam: ['conf-dir', 'cni-cache-dir'],
  networks: ['conf-dir', 'bin-dir'],
  validate: ['conf-dir', 'bin-dir'],
  'why-not': ['conf-dir', 'bin-dir', 'cni-cache-dir', 'state-dir'],
};

/** Serves a page about this node to a browser on it, until a signal or a time without requests ends it. */
export async function run(call: CommandCall): Promise<number> {
  const port = countOf(call, 'port', 0, 0);
  const idleMs = countOf(call, 'idle-exit', IDLE_S) * 1_000;
  const server = listen(call, port, idleMs);
  call.signal.addEventListener('abort', () => server.stop());
  if (call.signal.aborted) server.stop();
  if (isData(call)) await printOne(call, 'UiAddress', { url: server.url });
  else call.out(`${server.url}\nThis address works once, in one browser on this host. Ctrl-C ends it.\n`);
  if ((await server.ended) === 'idle')
    call.err(`catena: no request for ${idleMs / 1_000} s: the page ends\n`);
  return 0;
}

function listen(call: CommandCall, port: number, idleMs: number): UiServer {
  try {
    if (port > MAX_PORT) throw new Error(`the highest port is ${MAX_PORT}`);
    return serveUi({ page: PAGE, sources: openSources(askIn(call)), port, idleMs });
  } catch (cause) {
    throw new CniError(
      ErrorCode.ioFailure,
      `Cannot listen on port ${port} of 127.0.0.1: ${(cause as Error).message}; choose another --port, or none`,
      { cause },
    );
  }
}

/** Runs commands in this process, as the daemon does. */
function askIn(call: CommandCall): Ask {
  return async ([name = '', ...args]) => {
    const written = { 1: '', 2: '' };
    const options = (PASSED_ON[name] ?? []).flatMap(option => {
      const values = option === 'bin-dir' ? call.texts(option) : [call.text(option) ?? []].flat();
      return values.map(value => `--${option}=${value}`);
    });
    const { env, plugins, signal, cwd } = call;
    await call.runCommand([name, '--json', ...options, ...args], {
      ...{ env, plugins, signal },
      ...(cwd === undefined ? {} : { cwd }),
      write(fd, text) {
        written[fd] += text;
      },
    });
    if (written[1] !== '') return written[1];
    throw new Error(messageIn(written[2]));
  };
}

/** A failure is one JSON object, after warnings. */
function messageIn(text: string): string {
  const line = text.trimEnd().split('\n').at(-1) ?? '';
  const failure = tryParse(line);
  return isObject(failure) ? String(failure.msg) : line;
}
