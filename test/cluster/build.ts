// How are the programs of a cluster made of Debian's packages?
// Kubernetes: the source package of Debian 12, which has no binary one but kubectl's, built with its Go 1.19. All packages are only unpacked.

import fs from 'node:fs';
import { run, TEST_PATH } from '../helpers/command.ts';
import { libraryDirs, unpackedAt, unpackPackages } from '../helpers/unpack.ts';
import type { Say } from './cluster.ts';
import { BUILT, kubernetesDir, missingIn, PACKAGES, UNPACKED } from './programs.ts';

const COMPILER = [
  ...['golang-1.19-go', 'golang-1.19-src', 'golang-github-modern-go-reflect2-dev'],
  ...['golang-github-appc-cni-dev', 'rsync', 'jq', 'make', 'dpkg-dev'],
];
/** Where {@link COMPILER} is unpacked. */
const TOOLS = unpackedAt('catena-compiler');
/** Debian's reflect2. The vendored one is older than Go 1.18, with which an API server dies at its first custom resource. */
const REFLECT2 = 'github.com/modern-go/reflect2';
const SOURCES = `Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`;

/** Builds what an earlier run did not. @throws Error that names the log */
export async function buildKubernetes(say: Say): Promise<void> {
  const failure = await unpackPackages(UNPACKED, Object.values(PACKAGES));
  if (failure !== undefined) say(failure);
  const missing = missingIn(kubernetesDir());
  if (missing.length === 0 || process.env.KUBERNETES_BIN !== undefined) return;
  say(`building ${missing.join(', ')}: once, some five minutes on two idle cores`);
  const problem = await unpackPackages(TOOLS, COMPILER);
  if (problem !== undefined) throw new Error(problem);
  const work = `${BUILT}-sources`;
  const source = `${work}/src`;
  fs.mkdirSync(BUILT, { recursive: true });
  if (!fs.existsSync(source)) await unpackSource(work, source);
  const go = `${work}/go`;
  fs.mkdirSync(`${go}/src/k8s.io`, { recursive: true });
  fs.rmSync(`${go}/src/k8s.io/kubernetes`, { force: true });
  fs.symlinkSync(source, `${go}/src/k8s.io/kubernetes`);
  fs.rmSync(`${source}/vendor/${REFLECT2}`, { recursive: true });
  fs.cpSync(`${TOOLS}/usr/share/gocode/src/${REFLECT2}`, `${source}/vendor/${REFLECT2}`, { recursive: true });
  for (const one of HASTY) hasten(source, one);
  const started = performance.now();
  await make(
    source,
    missing.map(program => `cmd/${program}`),
    { GOPATH: go, HOME: work },
  );
  for (const program of missing) {
    fs.copyFileSync(`${source}/_output/bin/${program}`, `${BUILT}/${program}.new`);
    fs.renameSync(`${BUILT}/${program}.new`, `${BUILT}/${program}`);
  }
  say(`built ${missing.join(', ')} in ${((performance.now() - started) / 1000).toFixed(0)} s`);
  // Several gigabytes.
  fs.rmSync(work, { recursive: true, force: true });
}

/**
 * This kubelet keeps a pod until its sandbox is removed, removes sandboxes once a minute, and says every ten seconds which pods are
 * gone, so each scenario would wait for that several times. Later ones do both at once.
 */
const HASTY = [
  {
    file: 'pkg/kubelet/kubelet.go',
    is: 'ContainerGCPeriod = time.Minute',
    becomes: 'ContainerGCPeriod = 2 * time.Second',
  },
  {
    file: 'pkg/kubelet/status/status_manager.go',
    is: 'syncPeriod = 10 * time.Second',
    becomes: 'syncPeriod = time.Second',
  },
] as const;

function hasten(source: string, { file, is, becomes }: (typeof HASTY)[number]): void {
  const path = `${source}/${file}`;
  const text = fs.readFileSync(path, 'utf8');
  // An interrupted build is continued.
  if (text.includes(becomes)) return;
  if (!text.includes(is)) throw new Error(`Cannot change "${path}": it has no "${is}"`);
  fs.writeFileSync(path, text.replace(is, becomes));
}

/** The sources, with an apt-get that has a list of its own: the machine's own need not name them. */
async function unpackSource(work: string, source: string): Promise<void> {
  fs.mkdirSync(`${work}/apt/lists/partial`, { recursive: true });
  fs.writeFileSync(`${work}/apt/bookworm.sources`, SOURCES);
  const own = [
    ...['-o', 'Dir::Etc::SourceList=/dev/null', '-o', `Dir::Etc::SourceParts=${work}/apt`],
    ...['-o', `Dir::State::Lists=${work}/apt/lists`, '-o', 'APT::Sandbox::User=root'],
  ];
  const options = { cwd: work, env: toolEnv(), timeoutMs: 600_000 };
  const log = `${BUILT}/build.log`;
  await must(['apt-get', '-q', ...own, 'update'], options, log);
  await must(['apt-get', '-q', ...own, 'source', '--download-only', 'kubernetes'], options, log);
  const [description = 'kubernetes.dsc'] = fs.globSync('*.dsc', { cwd: work });
  await must(['dpkg-source', '--extract', description, source], options, log);
}

/** Builds what plays multus in the figures, unless an earlier run did; or says why it cannot be had. */
export async function buildMultus(): Promise<{ readonly program: string } | { readonly missing: string }> {
  const source = `${import.meta.dir}/multus/main.go`;
  const program = `${BUILT}/multus-${Bun.hash(fs.readFileSync(source)).toString(36)}`;
  if (fs.existsSync(program)) return { program };
  const missing = await unpackPackages(TOOLS, COMPILER);
  if (missing !== undefined) return { missing };
  fs.mkdirSync(BUILT, { recursive: true });
  const env = { ...toolEnv(), GOPATH: `${TOOLS}/usr/share/gocode`, GO111MODULE: 'off' };
  const work = fs.mkdtempSync(`${program}-`);
  try {
    await must(
      ['go', 'build', '-o', `${work}/multus`, source],
      { cwd: work, timeoutMs: 900_000, env: { ...env, HOME: work } },
      `${BUILT}/build.log`,
    );
    fs.renameSync(`${work}/multus`, program);
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
  return { program };
}

/** The makefile generates what the programs are compiled with, such as the API server's tables of OpenAPI. */
function make(source: string, what: readonly string[], env: Readonly<Record<string, string>>): Promise<void> {
  const options = {
    cwd: source,
    timeoutMs: 3_600_000,
    env: {
      ...toolEnv(),
      ...env,
      GO111MODULE: 'off',
      CGO_ENABLED: '0',
      // The compiler's heaps are small next to the memory of a machine that runs a cluster.
      GOGC: '400',
      KUBE_GIT_VERSION: 'v1.20.2',
      KUBE_GIT_MAJOR: '1',
      KUBE_GIT_MINOR: '20',
      KUBE_GIT_COMMIT: 'debian',
      KUBE_GIT_TREE_STATE: 'archive',
    },
  };
  return must(['make', `WHAT=${what.join(' ')}`], options, `${BUILT}/build.log`);
}

/** With which unpacked programs find each other, their libraries and modules. */
function toolEnv(): Record<string, string> {
  const perl = fs.globSync(`${TOOLS}/usr/{share,lib/*}/perl{5,/5.*,-base}`);
  return {
    PATH: `${TOOLS}/usr/lib/go-1.19/bin:${TOOLS}/usr/bin:${TEST_PATH}`,
    LD_LIBRARY_PATH: libraryDirs(TOOLS).join(':'),
    PERL5LIB: perl.join(':'),
    DPKG_DATADIR: `${TOOLS}/usr/share/dpkg`,
  };
}

async function must(argv: readonly string[], options: Parameters<typeof run>[1], log: string): Promise<void> {
  const { exitCode, stdout, stderr } = await run(argv, options);
  fs.appendFileSync(log, `${stdout}${stderr}`);
  if (exitCode !== 0) throw new Error(`Cannot run "${argv.join(' ')}": exit code ${exitCode}; see ${log}`);
}
