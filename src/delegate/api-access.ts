// Which API server does a kubeconfig name, and with which credentials?
//
// The kubeconfig that `catena install` writes contains the path of a token that belongs to a pod of the DaemonSet. While that pod is
// replaced, as in each upgrade, the token is gone or refused for some seconds, until its successor has written the kubeconfig again.
// Pods that come and go at that moment should not fail, so requests wait for it.
import type { RequestOptions } from 'node:https';
import { KubeConfig } from '@kubernetes/client-node';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { pause } from '../wait.ts';

/** How long a pod of the DaemonSet may take to be replaced. */
const REPLACEMENT_MS = 30_000;
const LOOK_AGAIN_MS = 250;

/** The server and the credentials of a kubeconfig. */
export class ApiAccess {
  readonly #kubeconfig: string | undefined;
  #config: KubeConfig;

  /**
   * @param kubeconfig its path; if undefined, the account of the pod that this process runs in
   * @throws CniError 7 when it cannot be used
   */
  constructor(kubeconfig: string | undefined) {
    this.#kubeconfig = kubeconfig;
    this.#config = load(kubeconfig);
    serverOf(this.#config, kubeconfig);
  }

  /**
   * Does work with credentials. If its token is gone, or the work throws {@link Unauthorized}, it is done again with those that
   * replace them.
   * @param signal ends the wait
   * @param work gets the server's address
   * @throws CniError 11 when the token does not come back in time, 7 when the kubeconfig cannot be used
   */
  async with<T>(
    options: RequestOptions,
    signal: AbortSignal | undefined,
    work: (server: string, options: RequestOptions) => Promise<T>,
  ): Promise<T> {
    const until = performance.now() + REPLACEMENT_MS;
    for (;;) {
      try {
        const own = { ...options, headers: { ...options.headers } };
        await this.#authorize(own);
        return await work(serverOf(this.#config, this.#kubeconfig), own);
      } catch (error) {
        const isLate = performance.now() > until || signal?.aborted;
        if (isLate || !this.#hasToken || !(error instanceof TokenGone || error instanceof Unauthorized))
          throw error;
      }
      await pause(LOOK_AGAIN_MS);
      this.#reload();
    }
  }

  async #authorize(options: RequestOptions): Promise<void> {
    try {
      // Applied to every request, because tokens are replaced while we run.
      await this.#config.applyToHTTPSOptions(options);
      // One for all requests with these credentials: without a connection that is kept, each request costs both sides a handshake.
      Object.assign(options.agent ?? {}, { keepAlive: true });
    } catch (cause) {
      const isGone = (cause as NodeJS.ErrnoException).code === 'ENOENT';
      const what = nameOf(this.#kubeconfig);
      const text = `Cannot use ${what}: ${(cause as Error).message}`;
      throw isGone ? new TokenGone(text, { cause }) : new CniError(ErrorCode.invalidConfig, text, { cause });
    }
  }

  /** Whether its credentials are a token that is renewed in a file. */
  get #hasToken(): boolean {
    const { authProvider } = this.#config.getCurrentUser() ?? {};
    return typeof authProvider?.config?.tokenFile === 'string';
  }

  #reload(): void {
    try {
      this.#config = load(this.#kubeconfig);
    } catch {
      // It is being replaced, and the former one may still do.
    }
  }
}

/** The server does not accept the credentials. */
export class Unauthorized extends CniError {}

class TokenGone extends CniError {
  constructor(text: string, more: { cause: unknown }) {
    super(ErrorCode.tryAgainLater, text, more);
  }
}

/** Where the server of an access is, as a URL. @throws CniError 7 when the kubeconfig cannot be used */
export function serverAddress({ kubeconfig }: { readonly kubeconfig: string | undefined }): string {
  return serverOf(load(kubeconfig), kubeconfig);
}

/** The namespace that the current context of a kubeconfig names. @throws CniError 7 when it cannot be used */
export function namespaceIn(kubeconfig: string): string | undefined {
  const config = load(kubeconfig);
  return config.getContextObject(config.getCurrentContext())?.namespace;
}

function load(kubeconfig: string | undefined): KubeConfig {
  const config = new KubeConfig();
  try {
    if (kubeconfig === undefined) config.loadFromCluster();
    else config.loadFromFile(kubeconfig);
    return config;
  } catch (cause) {
    throw unusable(kubeconfig, (cause as Error).message, cause);
  }
}

function serverOf(config: KubeConfig, kubeconfig: string | undefined): string {
  const server = config.getCurrentCluster()?.server;
  if (server === undefined) throw unusable(kubeconfig, 'its current context has no cluster');
  if (isAddress(server)) return server;
  const found = `the server of its cluster is ${JSON.stringify(server)}`;
  throw unusable(kubeconfig, `${found}, expected an address that starts with "https://"`);
}

/** The kubeconfig may lack the scheme, or hold a YAML number. */
function isAddress(server: unknown): boolean {
  return typeof server === 'string' && URL.canParse(server) && new URL(server).protocol === 'https:';
}

function unusable(kubeconfig: string | undefined, problem: string, cause?: unknown): CniError {
  const text = `Cannot use ${nameOf(kubeconfig)}: ${problem}`;
  return new CniError(ErrorCode.invalidConfig, text, { cause });
}

function nameOf(kubeconfig: string | undefined): string {
  return kubeconfig === undefined ? 'the service account of this pod' : `kubeconfig "${kubeconfig}"`;
}
