// What does the Kubernetes API say of definitions and pods, and how is it told what a pod got?
//
// @kubernetes/client-node finds cluster and credentials; it is loaded when one is configured. Its own requests need a
// way to the server that Bun does not have (undici's dispatcher): the three that are made here go over node:https.
import { readFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { definitionsOf, type NetworkDefinition } from './definition-file.ts';
import type { NetworkStatus } from './network-status.ts';

/** Where the API is, and how long an answer may take. */
export interface ClusterAccess {
  /** Path of a kubeconfig; the account of the pod that this runs in when undefined. */
  readonly kubeconfig: string | undefined;
  readonly timeoutMs: number;
}

/** A pod, as far as it matters here. */
export interface KubernetesPod {
  readonly uid: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A cluster. Every call throws CniError 11 when it cannot be reached or is busy. */
export interface Cluster {
  /** Undefined when there is none. */
  findDefinition(namespace: string, name: string): Promise<NetworkDefinition | undefined>;
  /** Undefined when there is none. */
  findPod(namespace: string, name: string): Promise<KubernetesPod | undefined>;
  /** Writes the annotation, or takes it away; nothing else of the pod is touched. */
  setStatus(namespace: string, name: string, status: readonly NetworkStatus[] | undefined): Promise<void>;
}

const STATUS_ANNOTATION = 'k8s.v1.cni.cncf.io/network-status';
const TOKEN_FILE = '/var/run/secrets/kubernetes.io/serviceaccount/token';
/** Answers longer than this are not of the three kinds that are asked for. */
const MAX_BYTES = 16 * 1024 * 1024;

/** True in a pod that has an account of its cluster. */
export function isInCluster(env: Readonly<Record<string, string | undefined>>): boolean {
  if (!env.KUBERNETES_SERVICE_HOST || !env.KUBERNETES_SERVICE_PORT) return false;
  try {
    return readFileSync(TOKEN_FILE, 'utf8') !== '';
  } catch {
    return false;
  }
}

/**
 * The cluster that is configured; nothing is asked yet.
 * @throws CniError 7 when the kubeconfig cannot be used
 */
export async function openCluster({ kubeconfig, timeoutMs }: ClusterAccess): Promise<Cluster> {
  const { KubeConfig } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  try {
    if (kubeconfig === undefined) config.loadFromCluster();
    else config.loadFromFile(kubeconfig);
  } catch (cause) {
    throw unusable(kubeconfig, (cause as Error).message, cause);
  }
  const server = config.getCurrentCluster()?.server;
  if (server === undefined) throw unusable(kubeconfig, 'its current context has no cluster');
  const ask: Ask = async (method, path, body) => {
    const url = new URL(path, `${server.replace(/\/+$/, '')}/`);
    const options: RequestOptions = { method, timeout: timeoutMs, headers: {} };
    try {
      // Every time: tokens are exchanged while we run.
      await config.applyToHTTPSOptions(options);
    } catch (cause) {
      throw unusable(kubeconfig, (cause as Error).message, cause);
    }
    return converse(url, options, timeoutMs, body);
  };
  return {
    async findDefinition(namespace, name) {
      const path = `apis/k8s.cni.cncf.io/v1/namespaces/${enc(namespace)}/network-attachment-definitions/${enc(name)}`;
      const [found] = definitionsOf(await ask('GET', path));
      return found;
    },
    async findPod(namespace, name) {
      const pod = await ask('GET', podPath(namespace, name));
      return pod && podOf(pod);
    },
    async setStatus(namespace, name, status) {
      const text = status === undefined ? null : JSON.stringify(status, null, 4);
      const patch = { metadata: { annotations: { [STATUS_ANNOTATION]: text } } };
      const patched = await ask('PATCH', `${podPath(namespace, name)}/status`, patch);
      if (patched !== undefined || status === undefined) return;
      throw new CniError(
        ErrorCode.unknownContainer,
        `Cannot write network status of pod "${namespace}/${name}": there is no such pod`,
      );
    },
  };
}

/** The object in the answer; undefined when there is none of that name. */
type Ask = (method: 'GET' | 'PATCH', path: string, body?: JsonObject) => Promise<JsonObject | undefined>;

function podPath(namespace: string, name: string): string {
  return `api/v1/namespaces/${enc(namespace)}/pods/${enc(name)}`;
}

function enc(part: string): string {
  return encodeURIComponent(part);
}

function podOf({ metadata }: JsonObject): KubernetesPod {
  const { uid, annotations } = isObject(metadata) ? metadata : {};
  const texts = Object.entries(isObject(annotations) ? annotations : {});
  return {
    uid: typeof uid === 'string' ? uid : '',
    annotations: Object.fromEntries(
      texts.filter((one): one is [string, string] => typeof one[1] === 'string'),
    ),
  };
}

async function converse(
  url: URL,
  options: RequestOptions,
  timeoutMs: number,
  body: JsonObject | undefined,
): Promise<JsonObject | undefined> {
  const text = body && JSON.stringify(body);
  const headers = {
    ...options.headers,
    accept: 'application/json',
    ...(text === undefined
      ? {}
      : { 'content-type': 'application/merge-patch+json', 'content-length': Buffer.byteLength(text) }),
  };
  const what = `${options.method} ${url.pathname} of "${url.origin}"`;
  const { status, answer } = await exchange(url, { ...options, headers }, timeoutMs, text).catch(cause => {
    throw new CniError(
      ErrorCode.tryAgainLater,
      `Cannot reach the Kubernetes API: ${(cause as Error).message}`,
      {
        details: what,
        cause,
      },
    );
  });
  if (status === 404) return undefined;
  const object = parse(answer);
  if (status >= 200 && status < 300 && object) return object;
  const busy = status === 429 || status >= 500 || status === 409;
  const message = typeof object?.message === 'string' ? object.message : `status ${status}`;
  throw new CniError(
    busy ? ErrorCode.tryAgainLater : ErrorCode.internal,
    `Cannot use the Kubernetes API: ${message}`,
    { details: `${what}: status ${status}` },
  );
}

async function exchange(
  url: URL,
  options: RequestOptions,
  timeoutMs: number,
  text: string | undefined,
): Promise<{ status: number; answer: string }> {
  // Whoever has no cluster does not wait for it to load.
  const { request } = await import('node:https');
  return new Promise((resolve, reject) => {
    const asked = request(url, options, reply => {
      const chunks: Buffer[] = [];
      let size = 0;
      reply.on('data', (chunk: Buffer) => {
        size += chunk.length;
        if (size > MAX_BYTES) asked.destroy(new Error('its answer is too long'));
        else chunks.push(chunk);
      });
      reply.on('end', () => {
        clearTimeout(timer);
        resolve({ status: reply.statusCode ?? 0, answer: Buffer.concat(chunks).toString() });
      });
      reply.on('error', fail);
    });
    const timer = setTimeout(
      () => fail(new Error(`it did not answer within ${timeoutMs / 1000} s`)),
      timeoutMs,
    );
    asked.on('error', fail);
    asked.end(text);

    function fail(error: Error): void {
      clearTimeout(timer);
      asked.destroy();
      reject(error);
    }
  });
}

function parse(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function unusable(kubeconfig: string | undefined, problem: string, cause?: unknown): CniError {
  const what = kubeconfig === undefined ? 'the account of this pod' : `kubeconfig "${kubeconfig}"`;
  return new CniError(ErrorCode.invalidConfig, `Cannot use ${what}: ${problem}`, { cause });
}
