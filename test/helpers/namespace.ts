// Who made which namespace under /run/netns, and which of them may go?

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { run, runOk } from './command.ts';

const NAMES = '/run/netns';

/** What every namespace and directory of a test begins with; the maker's process id follows. */
export const PREFIX = 'cat-';

/** A network namespace with a name under /run/netns. */
export interface Namespace {
  readonly name: string;
  readonly path: string;
}

/** Makes a namespace and adds its name to the caller's set; `role` is one letter that ends the name. */
export async function addNamespace(namespaces: Set<string>, role: string): Promise<Namespace> {
  const name = `${PREFIX}${process.pid}-${++counter}${role}`;
  await runOk(['ip', 'netns', 'add', name]);
  namespaces.add(name);
  return { name, path: path.join(NAMES, name) };
}

/** Kills what runs in a namespace, then removes it: one without a name lives on while a process is in it. */
export async function deleteNamespace(name: string): Promise<void> {
  const pids = (await run(['ip', 'netns', 'pids', name])).stdout.split('\n').filter(Boolean).map(Number);
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It ended by itself in the meantime.
    }
  }
  await run(['ip', 'netns', 'delete', name]);
}

/** Removes namespaces and directories whose test process is gone; a killed run leaves some. */
export async function sweepLeftovers(): Promise<void> {
  const owner = (name: string): number => Number(/^cat-(\d+)-/.exec(name)?.[1] ?? process.pid);
  const dead = (name: string): boolean => !fs.existsSync(`/proc/${owner(name)}`);
  await Promise.all(allNames().filter(dead).map(deleteNamespace));
  for (const name of fs.readdirSync(os.tmpdir()).filter(dead)) {
    fs.rmSync(path.join(os.tmpdir(), name), { recursive: true, force: true });
  }
}

/** The namespaces that this process made and has not removed. */
export function ownLeftovers(): string[] {
  return allNames().filter(name => name.startsWith(`${PREFIX}${process.pid}-`));
}

let counter = 0;

function allNames(): string[] {
  return fs.existsSync(NAMES) ? fs.readdirSync(NAMES) : [];
}
