// How does a test get a Kubernetes API server? A real HTTPS server, with a certificate made on the spot, that supports the
// requests under test in JSON, including watches.
import fs from 'node:fs';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { runOk } from './command.ts';
import { type Collections, makeCollections } from './kubernetes-watch.ts';
import type { Row } from './netns.ts';

/** One request as the server received it. */
export interface ApiRequest {
  readonly method: string;
  readonly path: string;
  readonly token: string;
  readonly contentType: string;
  readonly body: string;
}

/** The server and its objects. */
export interface ApiServer {
  /** A kubeconfig that points to it. */
  readonly kubeconfig: string;
  readonly url: string;
  readonly requests: ApiRequest[];
  /** The token that it accepts; a test may change it. */
  token: string;
  /** Objects by path. */
  readonly objects: Map<string, Row>;
  /** Lists and watches. */
  readonly collections: Collections;
  addPod(namespace: string, name: string, metadata: Row): void;
  /** Creates or replaces one. */
  addDefinition(namespace: string, name: string, config: object | string, resource?: string): void;
  removeDefinition(namespace: string, name: string): void;
  /** Creates or replaces an IPAMClaim. */
  addClaim(namespace: string, name: string, claim: { readonly spec?: Row; readonly status?: Row }): void;
  /** The addresses that a claim currently holds. */
  claimed(namespace: string, name: string): Row;
  /** The resource definition of claims: whether status is a subresource, and which fields a status must have. */
  readonly claimKind: { hasStatus: boolean; required: readonly string[] };
  /** A pod's current annotations. */
  annotations(namespace: string, name: string): Row;
  /** Events in a namespace. */
  events(namespace: string): Row[];
  /** As for an account that may not create events. */
  refuseEvents: boolean;
  /** From now on every request is answered like this: with a status or, with `hang`, never; with `cut` the connection of one request ends. */
  answer(how: number | 'hang' | 'cut' | undefined): void;
  /** Connections that were made so far. */
  readonly connections: number;
  close(): Promise<void>;
}

const TOKEN = 'secret-token';

/** Starts it on a free port of 127.0.0.1 in the test's namespace; certificates are written to the directory. */
export async function startApiServer(dir: string): Promise<ApiServer> {
  await makeCertificates(dir);
  const read = (name: string) => fs.readFileSync(path.join(dir, name));
  const objects = new Map<string, Row>();
  const collections = makeCollections(objects);
  const requests: ApiRequest[] = [];
  const claimKind: ApiServer['claimKind'] = { hasStatus: true, required: ['ips'] };
  let token = TOKEN;
  let refuseEvents = false;
  let how: number | 'hang' | 'cut' | undefined;
  let connections = 0;
  const server = https.createServer({ cert: read('server.crt'), key: read('server.key') }, (asked, reply) => {
    let body = '';
    asked.on('data', chunk => {
      body += chunk;
    });
    asked.on('end', () => {
      const { method = '', url = '', headers } = asked;
      const given = (headers.authorization ?? '').replace('Bearer ', '');
      requests.push({ method, path: url, token: given, contentType: headers['content-type'] ?? '', body });
      if (how === 'hang') return;
      if (how === 'cut') {
        how = undefined;
        asked.socket.destroy();
        return;
      }
      const at = new URL(url, 'https://api');
      if (how === undefined && given === token && method === 'GET' && collections.serve(at, reply)) return;
      const { status, object } = respond(how, given, method, url, body);
      reply.writeHead(status, { 'content-type': 'application/json' });
      reply.end(JSON.stringify(object));
    });
  });

  server.on('secureConnection', () => {
    connections += 1;
  });

  function respond(forced: number | undefined, given: string, method: string, url: string, body: string) {
    if (given !== token) return failure(401, 'Unauthorized');
    if (forced !== undefined) return failure(forced, `forced ${forced}`);
    if (refuseEvents && url.endsWith('/events')) return failure(403, 'events is forbidden');
    if (method === 'POST') return create(url, JSON.parse(body));
    const at = url.replace(/\/status$/, '');
    const object = objects.get(at);
    const isClaim = at.includes('/ipamclaims/');
    if (object === undefined || (isClaim && at !== url && !claimKind.hasStatus)) {
      return failure(404, `"${url}" not found`);
    }
    if (method !== 'PATCH') return { status: 200, object };
    const patch = JSON.parse(body);
    const { resourceVersion, uid } = patch.metadata ?? {};
    if (uid !== undefined && uid !== object.metadata.uid) return failure(409, 'Precondition failed: UID');
    if (resourceVersion !== undefined && resourceVersion !== object.metadata.resourceVersion) {
      return failure(409, 'the object has been modified; please apply your changes to the latest version');
    }
    const changed = structuredClone(object);
    merge(changed, patch);
    const missing = claimKind.required.find(key => isClaim && changed.status?.[key] === undefined);
    if (missing) return failure(422, `status.${missing}: Required value`);
    collections.put(at, changed);
    return { status: 200, object: changed };
  }

  function create(url: string, object: Row) {
    const at = `${url}/${object.metadata.name}`;
    if (objects.has(at)) return failure(409, `"${at}" already exists`);
    object.metadata.uid ??= `uid-of-${at}`;
    collections.put(at, object);
    return { status: 201, object };
  }

  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const kubeconfig = path.join(dir, 'kubeconfig');
  fs.writeFileSync(kubeconfig, renderKubeconfig(url, read('ca.crt').toString('base64')));
  return {
    kubeconfig,
    url,
    get token() {
      return token;
    },
    set token(next) {
      token = next;
    },
    get refuseEvents() {
      return refuseEvents;
    },
    set refuseEvents(next) {
      refuseEvents = next;
    },
    get connections() {
      return connections;
    },
    requests,
    objects,
    collections,
    addPod(namespace, name, metadata) {
      const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace, uid: 'uid-1', ...metadata } };
      collections.put(`/api/v1/namespaces/${namespace}/pods/${name}`, { ...pod, spec: { nodeName: 'node' } });
    },
    addDefinition(namespace, name, config, resource) {
      const annotations = resource ? { 'k8s.v1.cni.cncf.io/resourceName': resource } : {};
      collections.put(definitionPath(namespace, name), {
        apiVersion: 'k8s.cni.cncf.io/v1',
        kind: 'NetworkAttachmentDefinition',
        metadata: { name, namespace, annotations },
        spec: { config: typeof config === 'string' ? config : JSON.stringify(config) },
      });
    },
    removeDefinition: (namespace, name) => collections.remove(definitionPath(namespace, name)),
    addClaim(namespace, name, claim) {
      const metadata = { name, namespace, uid: `uid-${name}` };
      const object = { apiVersion: 'k8s.cni.cncf.io/v1alpha1', kind: 'IPAMClaim', metadata, ...claim };
      collections.put(claimPath(namespace, name), object);
    },
    claimed: (namespace, name) => objects.get(claimPath(namespace, name))?.status?.ips,
    claimKind,
    annotations: (namespace, name) =>
      objects.get(`/api/v1/namespaces/${namespace}/pods/${name}`)?.metadata.annotations ?? {},
    events: namespace =>
      [...objects].flatMap(([at, object]) =>
        at.startsWith(`/api/v1/namespaces/${namespace}/events/`) ? [object] : [],
      ),
    answer(next) {
      how = next;
    },
    async close() {
      collections.close();
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}

function definitionPath(namespace: string, name: string): string {
  return `/apis/k8s.cni.cncf.io/v1/namespaces/${namespace}/network-attachment-definitions/${name}`;
}

function claimPath(namespace: string, name: string): string {
  return `/apis/k8s.cni.cncf.io/v1alpha1/namespaces/${namespace}/ipamclaims/${name}`;
}

function failure(status: number, message: string) {
  return { status, object: { apiVersion: 'v1', kind: 'Status', status: 'Failure', code: status, message } };
}

/** RFC 7396 */
function merge(target: Row, patch: Row): void {
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete target[key];
    else if (typeof value === 'object' && !Array.isArray(value)) {
      target[key] ??= {};
      merge(target[key], value);
    } else target[key] = value;
  }
}

/** Of a server of 127.0.0.1: `server.crt`, `server.key` and `ca.crt` in the directory. */
export async function makeCertificates(dir: string): Promise<void> {
  const at = (name: string) => path.join(dir, name);
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const ca = ['-keyout', at('ca.key'), '-out', at('ca.crt'), '-days', '2', '-subj', '/CN=test-ca'];
  const own = ['-keyout', at('server.key'), '-out', at('server.csr'), '-subj', '/CN=api'];
  fs.writeFileSync(at('names'), 'subjectAltName=IP:127.0.0.1');
  const signed = ['-in', at('server.csr'), '-CA', at('ca.crt'), '-CAkey', at('ca.key'), '-CAcreateserial'];
  await runOk(['openssl', 'req', '-x509', ...key, ...ca]);
  await runOk(['openssl', 'req', ...key, ...own]);
  await runOk([
    'openssl',
    'x509',
    '-req',
    ...signed,
    '-out',
    at('server.crt'),
    '-days',
    '2',
    '-extfile',
    at('names'),
  ]);
}

export function renderKubeconfig(server: string, ca: string): string {
  return `apiVersion: v1
kind: Config
current-context: test
contexts:
- name: test
  context: {cluster: test, user: test}
clusters:
- name: test
  cluster:
    server: ${server}
    certificate-authority-data: ${ca}
users:
- name: test
  user:
    token: ${TOKEN}
`;
}
