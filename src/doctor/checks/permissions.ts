// Who besides root decides what root runs on this node?
import { statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { type Check, type Finding, fine } from '../finding.ts';

/** linux/stat.h: S_IWGRP and S_IWOTH */
const WRITABLE_BY_OTHERS = 0o022;

/** Directories of executables and configurations, and what is in them, that somebody else may write to. */
export const permissions: Check = {
  id: 'permissions',
  run({ pluginDirs, confDir, facts }) {
    const types = facts.networks().networks.flatMap(({ list }) => list.plugins.map(({ type }) => type));
    const links = pluginDirs.flatMap(dir => [...new Set(types)].map(type => join(dir, type)));
    const files = facts.networks().networks.map(({ file }) => file);
    const open = [...pluginDirs, confDir, ...links, ...files].flatMap(path => judge(path));
    const relative = pluginDirs.filter(dir => !isAbsolute(dir)).map(relativeDir);
    const all = [...open, ...relative];
    return all.length ? all : fine(this.id, 'only root decides which executables and lists are used');
  },
};

function judge(path: string): Finding[] {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return [];
  const isForeign = stat.uid !== 0 && stat.uid !== process.geteuid?.();
  if (!isForeign && (stat.mode & WRITABLE_BY_OTHERS) === 0) return [];
  const mode = (stat.mode & 0o7777).toString(8).padStart(4, '0');
  const found = `"${path}" belongs to user ${stat.uid} and has mode ${mode}: whoever may write there decides what root runs`;
  const mend = `chown root "${path}" && chmod go-w "${path}"`;
  return [{ id: permissions.id, severity: 'error', found, mend }];
}

function relativeDir(dir: string): Finding {
  const found = `plugin directory ${JSON.stringify(dir)} is relative: it is another one in every working directory`;
  return {
    id: permissions.id,
    severity: 'warning',
    found,
    mend: 'name plugin directories by their whole path',
  };
}
