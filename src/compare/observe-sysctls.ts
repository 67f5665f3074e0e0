// Which values do the kernel parameters of a namespace have?
import { closeSync, type Dirent, openSync, readdirSync, readSync } from 'node:fs';
import { inNetns, type Netns } from '../sys/netns.ts';
import type { Observed } from './observation.ts';

const ROOT = '/proc/sys/net';

/** Counters, secrets, and values that the kernel derives from the available memory. */
const VOLATILE =
  /^netfilter\/nf_conntrack_(count|max|buckets|expect_max)$|_usage$|stable_secret$|^ipv4\/(tcp|udp)_r?mem$|_mem$/;

/** Everything below /proc/sys/net of the namespace, by path; unreadable parameters are omitted. */
export function observeSysctls(netns: Netns): Readonly<Record<string, Observed>> {
  return inNetns(netns, () => {
    const found: Record<string, Observed> = {};
    for (const path of filesBelow('')) {
      const value = VOLATILE.test(path) ? undefined : read(path);
      if (value !== undefined) found[path] = { value };
    }
    return found;
  });
}

/** Neighbour tables have hundreds of parameters, which no plugin sets. */
const LEFT_OUT = /^ipv[46]\/neigh$/;

function filesBelow(dir: string): string[] {
  return list(dir).flatMap(entry => {
    const path = dir === '' ? entry.name : `${dir}/${entry.name}`;
    if (!entry.isDirectory()) return [path];
    return LEFT_OUT.test(path) ? [] : filesBelow(path);
  });
}

/** A device may be deleted during the walk. */
function list(dir: string): Dirent[] {
  try {
    return readdirSync(`${ROOT}/${dir}`, { withFileTypes: true });
  } catch {
    return [];
  }
}

const buffer = Buffer.alloc(4096);

/** Each observation reads a thousand of them, so this does no more than open, read and close. */
function read(path: string): string | undefined {
  let fd: number;
  try {
    fd = openSync(`${ROOT}/${path}`, 'r');
  } catch {
    return undefined;
  }
  try {
    return buffer.toString('latin1', 0, readSync(fd, buffer)).trim().replace(/\s+/g, ' ');
  } catch {
    return undefined;
  } finally {
    closeSync(fd);
  }
}
