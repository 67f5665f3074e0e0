// Which Debian packages do only the tests need, and how are they installed on a fresh machine?

import fs from 'node:fs';
import { type Finished, run, TEST_PATH } from './command.ts';
import { REFERENCE_BIN_DIR } from './plugin.ts';

// Package → a file or command that shows that it is installed.
const PACKAGES: Readonly<Record<string, string>> = {
  iproute2: 'ip',
  nftables: 'nft',
  iptables: 'iptables',
  'iputils-ping': 'ping',
  conntrack: 'conntrack',
  iperf3: 'iperf3',
  openssl: 'openssl',
  strace: 'strace',
  mandoc: 'mandoc',
  'groff-base': 'groff',
  'dnsmasq-base': 'dnsmasq',
  'containernetworking-plugins': `${REFERENCE_BIN_DIR}/bridge`,
};

/**
 * Installs what is missing, as root and with apt-get; otherwise tests that need it are skipped.
 * @returns a line for the reader if something is still missing
 */
export async function installTestPackages(): Promise<string | undefined> {
  const wanted = missingPackages();
  if (wanted.length === 0) return undefined;
  const skipping = `tests that need them are skipped (apt-get install ${wanted.join(' ')})`;
  if (process.getuid?.() !== 0) return `Cannot install "${wanted.join(' ')}": not root; ${skipping}`;
  if (Bun.which('apt-get', { PATH: TEST_PATH }) === null) {
    return `Cannot install "${wanted.join(' ')}": there is no apt-get here; ${skipping}`;
  }
  process.stdout.write(`installing ${wanted.join(' ')}\n`);
  const failure =
    (await updateLists()) ?? (await aptGet('install', '-y', '--no-install-recommends', ...wanted));
  const still = missingPackages();
  if (still.length === 0) return undefined;
  return `Cannot install "${still.join(' ')}": ${failure ?? 'apt-get installed something else'}; ${skipping}`;
}

function missingPackages(): string[] {
  const isThere = (sign: string): boolean => {
    return sign.startsWith('/') ? fs.existsSync(sign) : Bun.which(sign, { PATH: TEST_PATH }) !== null;
  };
  return Object.keys(PACKAGES).filter(name => !isThere(PACKAGES[name] ?? name));
}

let updated: Promise<string | undefined> | undefined;

/** Fetches the lists of packages, once in a process; returns the end of the output if it failed. */
export function updateLists(): Promise<string | undefined> {
  updated ??= aptGet('update');
  return updated;
}

/** Runs apt-get non-interactively; returns the end of its output if it failed. */
export async function aptGet(...args: string[]): Promise<string | undefined> {
  const env = { ...process.env, PATH: TEST_PATH, DEBIAN_FRONTEND: 'noninteractive' };
  let finished: Finished;
  try {
    finished = await run(['apt-get', '-q', '-o', 'DPkg::Lock::Timeout=120', ...args], {
      env,
      timeoutMs: 600_000,
    });
  } catch (error) {
    return String(error);
  }
  if (finished.exitCode === 0) return undefined;
  return finished.stderr.trim().split('\n').at(-1) ?? `exit code ${finished.exitCode}`;
}
