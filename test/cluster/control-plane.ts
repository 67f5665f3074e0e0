// How do etcd, the API server, the controllers and the scheduler of a cluster start, with RBAC and verified TLS?

import fs from 'node:fs';
import { type Machine, openMachine } from '../helpers/machine.ts';
import { API_SERVICE, MACHINES, PODS, SERVICES } from './addresses.ts';
import { awaiting } from './awaiting.ts';
import { type Account, account, kubeconfig, makeSecrets, type Secrets, tokenFile } from './certificates.ts';
import { type Kubectl, kubectlOf } from './kubectl.ts';
import type { Programs } from './programs.ts';
import { UPLINK, type Wire } from './wire.ts';

/** The machine with the control plane. */
export interface ControlPlane {
  readonly machine: Machine;
  readonly secrets: Secrets;
  /** The administrator's. */
  readonly kubectl: Kubectl;
  /** A kubeconfig of one of the accounts. */
  kubeconfigOf(account: Account): string;
  /** Starts the API server, and waits until it is ready. */
  startApiServer(): Promise<void>;
  /** Kills the API server. */
  killApiServer(): Promise<void>;
  /** Starts etcd, and waits until the API server reaches it. */
  startEtcd(): Promise<void>;
  /** Kills etcd; what it has written stays. */
  killEtcd(): Promise<void>;
  close(): Promise<void>;
}

const SERVER = `https://${MACHINES.control}:6443`;
const ADMIN = account('admin', 'system:masters');
const CONTROLLERS = account('system:kube-controller-manager');
const SCHEDULER = account('system:kube-scheduler');

/** Starts it. @param accounts those of the nodes */
export async function startControlPlane(
  wire: Wire,
  programs: Programs,
  accounts: readonly Account[],
  logs: string,
): Promise<ControlPlane> {
  const { machine, close } = await openMachine({ hostname: 'control', executables: 'bin', uplink: UPLINK });
  try {
    await wire.plug(machine.lab.host, 'control', MACHINES.control);
    const dir = `${machine.lab.tmp}/secrets`;
    const secrets = await makeSecrets(dir);
    const names = ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc'].map(name => `DNS:${name}`);
    const addresses = [API_SERVICE, MACHINES.control, '127.0.0.1'].map(address => `IP:${address}`);
    const serving = await secrets.issue('api', '/CN=api', [...names, ...addresses]);
    const client = await secrets.issue('api-client', '/O=system:masters/CN=api-client');
    fs.writeFileSync(`${dir}/tokens`, tokenFile([ADMIN, CONTROLLERS, SCHEDULER, ...accounts]), {
      mode: 0o600,
    });
    const kubeconfigOf = (one: Account): string => {
      const file = `${dir}/${one.user.replaceAll(':', '-')}.kubeconfig`;
      fs.writeFileSync(file, kubeconfig(SERVER, secrets.authority, one), { mode: 0o600 });
      return file;
    };
    const kubectl = kubectlOf(machine, programs.kubectl, kubeconfigOf(ADMIN));
    const starts = { api: 0, etcd: 0 };
    const startEtcdAlone = () => machine.start(etcd(programs), `${logs}/etcd-${++starts.etcd}.log`);
    // It is not ready without etcd.
    const untilReady = () =>
      awaiting('the API server', 120, async () => (await kubectl.try('get', '--raw', '/readyz')) === 'ok');
    const startApiServer = async (): Promise<void> => {
      const argv = apiServer(programs, { dir, secrets, serving, client });
      machine.start(argv, `${logs}/kube-apiserver-${++starts.api}.log`);
      await untilReady();
    };
    startEtcdAlone();
    await startApiServer();
    const leader = ['--leader-elect=false', '--bind-address=127.0.0.1'];
    machine.start(
      [
        ...[programs['kube-controller-manager'], ...leader, `--kubeconfig=${kubeconfigOf(CONTROLLERS)}`],
        ...['--use-service-account-credentials', `--root-ca-file=${secrets.authority}`],
        `--service-account-private-key-file=${secrets.serviceAccounts.key}`,
        ...['--allocate-node-cidrs=false', `--cluster-cidr=${PODS}`],
        // A node that reboots is seen to be gone within seconds, and its pods stay bound to it for a minute.
        ...['--node-monitor-period=2s', '--node-monitor-grace-period=20s', '--pod-eviction-timeout=60s'],
      ],
      `${logs}/kube-controller-manager.log`,
    );
    machine.start(
      [programs['kube-scheduler'], ...leader, `--kubeconfig=${kubeconfigOf(SCHEDULER)}`],
      `${logs}/kube-scheduler.log`,
    );
    return {
      machine,
      secrets,
      kubectl,
      kubeconfigOf,
      startApiServer,
      async killApiServer() {
        await machine.ok(['kill', '-KILL', ...machine.processes('/kube-apiserver')]);
      },
      async startEtcd() {
        startEtcdAlone();
        await untilReady();
      },
      async killEtcd() {
        await machine.ok(['kill', '-KILL', ...machine.processes('/etcd')]);
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function etcd(programs: Programs): string[] {
  const url = 'http://127.0.0.1:2379';
  return [
    programs.etcd,
    ...['--data-dir=/var/lib/etcd', `--listen-client-urls=${url}`, `--advertise-client-urls=${url}`],
    ...['--listen-peer-urls=http://127.0.0.1:2380', '--unsafe-no-fsync'],
  ];
}

interface ApiServerFiles {
  readonly dir: string;
  readonly secrets: Secrets;
  readonly serving: { readonly certificate: string; readonly key: string };
  readonly client: { readonly certificate: string; readonly key: string };
}

function apiServer(programs: Programs, { dir, secrets, serving, client }: ApiServerFiles): string[] {
  return [
    programs['kube-apiserver'],
    '--etcd-servers=http://127.0.0.1:2379',
    ...[`--advertise-address=${MACHINES.control}`, '--secure-port=6443'],
    ...[`--tls-cert-file=${serving.certificate}`, `--tls-private-key-file=${serving.key}`],
    ...['--authorization-mode=Node,RBAC', '--enable-admission-plugins=NodeRestriction'],
    ...['--anonymous-auth=false', `--token-auth-file=${dir}/tokens`, `--client-ca-file=${secrets.authority}`],
    `--service-cluster-ip-range=${SERVICES}`,
    ...[
      '--service-account-issuer=https://kubernetes.default.svc',
      '--api-audiences=https://kubernetes.default.svc',
    ],
    `--service-account-key-file=${secrets.serviceAccounts.publicKey}`,
    `--service-account-signing-key-file=${secrets.serviceAccounts.key}`,
    '--kubelet-preferred-address-types=InternalIP',
    `--kubelet-certificate-authority=${secrets.authority}`,
    ...[`--kubelet-client-certificate=${client.certificate}`, `--kubelet-client-key=${client.key}`],
  ];
}
