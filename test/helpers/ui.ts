// How does a test start `catena ui` in a fake host, and talk to it as a browser does or must not?
import type { IncomingHttpHeaders } from 'node:http';
import { CATENA } from './catena.ts';
import { directories, type Lab } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** An answer of the server. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** A running `catena ui`; it ends with the lab at the latest. */
export interface Ui {
  readonly url: string;
  readonly port: number;
  /** Path and query of the address, with the token. */
  readonly path: string;
  readonly process: Bun.Subprocess;
  /** Requests a path exactly as given, with these headers and no others. */
  get(path: string, headers?: Readonly<Record<string, string>>, method?: string): Promise<Answer>;
  /** Exchanges the token. */
  enter(): Promise<{ readonly folder: string; readonly cookie: string }>;
}

/** Asks from inside of the fake host; a client of Bun or Node would mend path and headers. */
const CLIENT = `
const [method, port, path, headers] = process.argv.slice(1);
const { request } = await import('node:http');
const sent = request({ host: '127.0.0.1', port, path, method, headers: JSON.parse(headers), agent: false }, reply => {
  let body = '';
  reply.setEncoding('utf8').on('data', text => { body += text; });
  reply.on('end', () => process.stdout.write(JSON.stringify({ status: reply.statusCode, headers: reply.headers, body })));
});
sent.end();`;

/** Starts it with the directories of the lab. */
export async function startUi(lab: Lab, ...args: string[]): Promise<Ui> {
  const { CATENA_RUN_DIR, CATENA_STATE_DIR, CATENA_CNI_CACHE_DIR } = directories(lab.tmp);
  const places = {
    'conf-dir': lab.tmp,
    'bin-dir': BIN_DIR,
    'cni-cache-dir': CATENA_CNI_CACHE_DIR,
    'state-dir': CATENA_STATE_DIR,
    'trace-dir': `${CATENA_RUN_DIR}/traces`,
  };
  const options = Object.entries(places).map(([name, value]) => `--${name}=${value}`);
  const own = ['env', `CATENA_RUN_DIR=${CATENA_RUN_DIR}`, CATENA, 'ui', '--json', ...options, ...args];
  const child = lab.start(lab.host, own);
  const { value } = await child.stdout.getReader().read();
  if (value === undefined) throw new Error(`catena ui ended: ${await new Response(child.stderr).text()}`);
  const { url } = JSON.parse(new TextDecoder().decode(value)) as { url: string };
  const { port, pathname, search } = new URL(url);
  const get: Ui['get'] = async (path, headers = {}, method = 'GET') => {
    const argv = [process.execPath, '-e', CLIENT, method, port, path, JSON.stringify(headers)];
    const { exitCode, stdout, stderr } = await lab.run(lab.host, argv);
    if (exitCode !== 0) throw new Error(`Cannot ask ${method} ${path}: ${stderr}`);
    return JSON.parse(stdout);
  };
  return {
    ...{ url, port: Number(port), path: `${pathname}${search}`, process: child, get },
    async enter() {
      const { headers } = await get(`${pathname}${search}`);
      const [cookie = ''] = headers['set-cookie'] ?? [];
      return { folder: /Path=([^;]+)/.exec(cookie)?.[1] ?? '', cookie: cookie.split(';')[0] ?? '' };
    },
  };
}
