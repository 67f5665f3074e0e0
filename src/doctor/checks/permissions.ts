// Which users besides root control what root runs on this node?
import { statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { type Check, type Finding, fine } from '../finding.ts';
import { type NodeUser, ROOT } from '../user.ts';

/** linux/stat.h: S_IWGRP and S_IWOTH */
const WRITABLE_BY_OTHERS = 0o022;

/**
 * Checks the directories of executables, configurations and our own state, and their files, for those that other users may write
 * to.
 */
export const permissions: Check = {
  id: 'permissions',
  run({ pluginDirs, confDir, runDir, stateDir, facts, user = ROOT }) {
    const types = facts.networks().networks.flatMap(({ list }) => list.plugins.map(({ type }) => type));
    const executables = pluginDirs.flatMap(dir => [...new Set(types)].map(type => join(dir, type)));
    const files = facts.networks().networks.map(({ file }) => file);
    const open = [...pluginDirs, confDir, ...executables, ...files].flatMap(path => judge(path, user));
    const relative = pluginDirs.filter(dir => !isAbsolute(dir)).map(relativeDir);
    const shared = [runDir, stateDir].flatMap(dir =>
      judge(dir, user, 'can replace our sockets, locks and records'),
    );
    const all = [...open, ...shared, ...relative];
    return all.length ? all : fine(this.id, 'only root can change executables and lists');
  },
};

function judge(path: string, user: NodeUser, power = 'can decide what root runs'): Finding[] {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return [];
  // In a user namespace, files of the host's root look like those of any other unmapped user.
  const isForeign = ![0, user.id, user.unknown].includes(stat.uid);
  if (!isForeign && (stat.mode & WRITABLE_BY_OTHERS) === 0) return [];
  const mode = (stat.mode & 0o7777).toString(8).padStart(4, '0');
  const found = `"${path}" belongs to user ${stat.uid} and has mode ${mode}: any user that can write there ${power}`;
  const mend = `chown root "${path}" && chmod go-w "${path}"`;
  return [{ id: permissions.id, severity: 'error', found, mend }];
}

function relativeDir(dir: string): Finding {
  const found = `plugin directory ${JSON.stringify(dir)} is relative: it depends on the working directory`;
  return {
    id: permissions.id,
    severity: 'warning',
    found,
    mend: 'use absolute paths for plugin directories',
  };
}
