// How does a test get a real Kubernetes API server, with etcd, RBAC and TLS?
import { existsSync, readFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ApiServer, openApiServer } from '../../src/delegate/api-server.ts';
import { crds } from '../../src/install/crds.ts';

const BIN = process.env.KUBERNETES_BIN ?? '';
/** Two processors that others use as well may need this long. */
const START_MS = 120_000;

/** Why tests with a real server are skipped; undefined if there is one. */
export const NO_REAL_API: string | undefined =
  BIN === ''
    ? 'KUBERNETES_BIN does not name a directory with kube-apiserver and api-up'
    : ['kube-apiserver', 'api-up'].every(name => existsSync(join(BIN, name))) && Bun.which('etcd')
      ? undefined
      : `"${BIN}" has no kube-apiserver and api-up, or there is no etcd`;

/** A server that a test started. */
export interface RealApi {
  readonly server: ApiServer;
  /** Of its administrator. */
  readonly kubeconfig: string;
  addNode(name: string): Promise<void>;
  close(): Promise<void>;
}

/** Starts etcd and kube-apiserver in a directory, on free ports, and creates the kinds of cluster-wide addresses. */
export async function startRealApi(dir: string): Promise<RealApi> {
  const [port, etcd] = [await freePort(), await freePort()];
  const started = Bun.spawn([join(BIN, 'api-up'), dir, String(port), String(etcd)], {
    stdout: 'ignore',
    stderr: 'ignore',
  });
  const kubeconfig = join(dir, 'admin.kubeconfig');
  const close = async (): Promise<void> => {
    // Its trap ends both servers.
    started.kill('SIGTERM');
    await Promise.race([started.exited, sleep(10_000)]);
  };
  try {
    const server = await untilReady(kubeconfig, dir, () => started.exitCode !== null);
    for (const text of crds().split(/^---$/m)) {
      const kind = Bun.YAML.parse(text) as Record<string, unknown>;
      await server.ask('POST', 'apis/apiextensions.k8s.io/v1/customresourcedefinitions', kind, [409]);
    }
    await untilServed(server);
    return {
      server,
      kubeconfig,
      close,
      async addNode(name) {
        await server.ask(
          'POST',
          'api/v1/nodes',
          { apiVersion: 'v1', kind: 'Node', metadata: { name } },
          [409],
        );
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

async function untilReady(kubeconfig: string, dir: string, hasEnded: () => boolean): Promise<ApiServer> {
  for (const giveUpAt = performance.now() + START_MS; ; await sleep(250)) {
    try {
      const server = openApiServer({ kubeconfig, timeoutMs: 10_000 });
      await server.ask('GET', 'api/v1/namespaces/kube-system', undefined, []);
      return server;
    } catch (cause) {
      if (!hasEnded() && performance.now() < giveUpAt) continue;
      const log = existsSync(join(dir, 'api.log'))
        ? readFileSync(join(dir, 'api.log'), 'utf8').slice(-2000)
        : '';
      throw new Error(`Cannot start kube-apiserver: ${log}`, { cause });
    }
  }
}

async function untilServed(server: ApiServer): Promise<void> {
  for (const giveUpAt = performance.now() + START_MS; performance.now() < giveUpAt; await sleep(200)) {
    const replies = await Promise.all(
      ['pools', 'blocks', 'addresses'].map(kind =>
        server.ask('GET', `apis/catena.cni.cncf.io/v1alpha1/${kind}`),
      ),
    );
    if (replies.every(Boolean)) return;
  }
  throw new Error('kube-apiserver does not serve the kinds of addresses');
}

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
