// With which certificates and tokens do the programs of a cluster know each other?

import crypto from 'node:crypto';
import fs from 'node:fs';
import { runOk } from '../helpers/command.ts';

/** A certificate of the cluster's authority, valid for two days. */
export interface Certificate {
  readonly certificate: string;
  readonly key: string;
}

/** Whom the API server knows by a token. */
export interface Account {
  readonly user: string;
  readonly groups: readonly string[];
  readonly token: string;
}

/** The secrets of one cluster, in files of a directory. */
export interface Secrets {
  /** File of the authority's certificate. */
  readonly authority: string;
  /** Makes a certificate; the names are those of openssl: `IP:10.0.0.1`, `DNS:kubernetes`. */
  issue(file: string, subject: string, names?: readonly string[]): Promise<Certificate>;
  /** The key pair by which tokens of service accounts are signed. */
  readonly serviceAccounts: { readonly key: string; readonly publicKey: string };
}

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** Makes the authority and the key of service accounts. */
export async function makeSecrets(dir: string): Promise<Secrets> {
  const at = (name: string): string => `${dir}/${name}`;
  fs.mkdirSync(dir, { recursive: true });
  const own = ['-keyout', at('ca.key'), '-out', at('ca.crt'), '-days', '2', '-subj', '/CN=cluster'];
  await runOk(['openssl', 'req', '-x509', ...KEY, ...own]);
  const pair = crypto.generateKeyPairSync('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs1', format: 'pem' },
  });
  fs.writeFileSync(at('accounts.key'), pair.privateKey, { mode: 0o600 });
  fs.writeFileSync(at('accounts.pub'), pair.publicKey);
  const authority = ['-CA', at('ca.crt'), '-CAkey', at('ca.key')];
  return {
    authority: at('ca.crt'),
    serviceAccounts: { key: at('accounts.key'), publicKey: at('accounts.pub') },
    async issue(file, subject, names = []) {
      const [request, extensions] = [at(`${file}.csr`), at(`${file}.ext`)];
      const made = { certificate: at(`${file}.crt`), key: at(`${file}.key`) };
      fs.writeFileSync(extensions, names.length ? `subjectAltName=${names.join(',')}\n` : '');
      await runOk(['openssl', 'req', ...KEY, '-keyout', made.key, '-out', request, '-subj', subject]);
      // Of its own, as a file of serial numbers would be written by all nodes that start.
      const serial = ['-set_serial', `0x${crypto.randomBytes(16).toString('hex')}`];
      const out = ['-in', request, '-out', made.certificate, '-days', '2', '-extfile', extensions];
      await runOk(['openssl', 'x509', '-req', ...authority, ...serial, ...out]);
      return made;
    },
  };
}

/** A new account. */
export function account(user: string, ...groups: string[]): Account {
  return { user, groups, token: crypto.randomBytes(16).toString('hex') };
}

/** The API server's file of tokens. */
export function tokenFile(accounts: readonly Account[]): string {
  return accounts
    .map(({ token, user, groups }, i) => `${token},${user},${i},"${groups.join(',')}"\n`)
    .join('');
}

/** A kubeconfig, as JSON, which is YAML as well. */
export function kubeconfig(server: string, authority: string, { user, token }: Account): string {
  const cluster = { server, 'certificate-authority': authority };
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'cluster',
    clusters: [{ name: 'cluster', cluster }],
    users: [{ name: user, user: { token } }],
    contexts: [{ name: 'cluster', context: { cluster: 'cluster', user } }],
  });
}
