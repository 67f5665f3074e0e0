// How does a test get a real Kubernetes API server, with etcd, RBAC and TLS?
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { crds } from '../../src/cli/install/crds.ts';
import { type ApiServer, openApiServer } from '../../src/delegate/api-server.ts';
import { account, kubeconfig as kubeconfigOf, makeSecrets, tokenFile } from '../cluster/certificates.ts';
import { kubernetesDir, UNPACKED } from '../cluster/programs.ts';
import { TEST_PATH } from './command.ts';

/** Two processors that others use as well may need this long. */
const START_MS = 120_000;
const ETCD = Bun.which('etcd', { PATH: `${UNPACKED}/usr/bin:${TEST_PATH}` });

/** Why tests with a real server are skipped; undefined if there is one. */
export const NO_REAL_API: string | undefined = !existsSync(`${kubernetesDir()}/kube-apiserver`)
  ? `"${kubernetesDir()}" has no kube-apiserver: "npm run cluster -- build" builds it, KUBERNETES_BIN names another directory`
  : ETCD === null
    ? 'needs "etcd" (Debian: etcd-server)'
    : Bun.which('openssl') === null
      ? 'needs "openssl"'
      : undefined;

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
  mkdirSync(dir, { recursive: true });
  const [port, etcd, peers] = [await freePort(), await freePort(), await freePort()];
  const secrets = await makeSecrets(dir);
  const serving = await secrets.issue('api', '/CN=api', ['IP:127.0.0.1', 'DNS:kubernetes']);
  const admin = account('admin', 'system:masters');
  const kubeconfig = join(dir, 'admin.kubeconfig');
  writeFileSync(join(dir, 'tokens'), tokenFile([admin]), { mode: 0o600 });
  writeFileSync(kubeconfig, kubeconfigOf(`https://127.0.0.1:${port}`, secrets.authority, admin), {
    mode: 0o600,
  });
  const log = openSync(join(dir, 'api.log'), 'a');
  const options = { stdin: 'ignore', stdout: log, stderr: log } as const;
  const store = Bun.spawn(
    [
      ETCD ?? 'etcd',
      ...[`--data-dir=${dir}/etcd`, '--unsafe-no-fsync', `--listen-peer-urls=http://127.0.0.1:${peers}`],
      ...[
        `--listen-client-urls=http://127.0.0.1:${etcd}`,
        `--advertise-client-urls=http://127.0.0.1:${etcd}`,
      ],
    ],
    options,
  );
  const started = Bun.spawn(
    [
      `${kubernetesDir()}/kube-apiserver`,
      ...[`--etcd-servers=http://127.0.0.1:${etcd}`, `--secure-port=${port}`, '--bind-address=127.0.0.1'],
      ...[`--tls-cert-file=${serving.certificate}`, `--tls-private-key-file=${serving.key}`],
      ...['--authorization-mode=RBAC', '--anonymous-auth=false', `--token-auth-file=${dir}/tokens`],
      ...['--service-cluster-ip-range=10.96.0.0/16', '--advertise-address=127.0.0.1'],
      ...['--service-account-issuer=https://kubernetes.default.svc', '--api-audiences=catena'],
      `--service-account-key-file=${secrets.serviceAccounts.publicKey}`,
      `--service-account-signing-key-file=${secrets.serviceAccounts.key}`,
      `--cert-dir=${dir}/certificates`,
    ],
    options,
  );
  const close = async (): Promise<void> => {
    for (const one of [started, store]) {
      one.kill('SIGTERM');
      const isOver = await Promise.race([one.exited.then(() => true), sleep(10_000).then(() => false)]);
      if (!isOver) one.kill('SIGKILL');
      await one.exited;
    }
    closeSync(log);
  };
  try {
    const server = await untilReady(kubeconfig, dir, () => started.exitCode !== null);
    for (const text of crds({ kubernetes: 20 }).split(/^---$/m)) {
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
